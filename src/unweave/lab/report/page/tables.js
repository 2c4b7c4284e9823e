// Sortable tables, and one measure for every method.
// ---------- tables
const order = { column: null, down: false };
const table = () => {
  if (!data.grids.length) { byId("tables").hidden = true; return; }
  const now = controls("table", {
    grid: { label: "Table", options: data.grids.map((grid, index) => [index, grid.title.split(" · ")[0]]) },
    seed: { label: "Seed", options: seedOptions() },
    ...showOption(),
  }, (name) => { if (name === "grid") order.column = null; if (!takeShow("table")) table(); });
  const grid = data.grids[Number(now.grid)];
  const rows = data.groups.map((group, index) => ({ group, index, cells: grid.columns.map((column) => at(index, column.place, now.seed)) })).filter(({ index }) => isShown(index));
  if (order.column !== null) rows.sort((one, other) => compare(one, other) * (order.down ? -1 : 1));
  byId("main-table").replaceChildren(head(grid), body(rows));
  byId("table-note").textContent = `${grid.title}. ${now.seed === MEAN ? "Mean and standard deviation over seeds." : `Seed ${now.seed} alone.`} Click a heading to sort.`;
};
const compare = (one, other) => {
  if (order.column < 0) return one.group.label.localeCompare(other.group.label);
  const [left, right] = [one.cells[order.column], other.cells[order.column]];
  // Rows without a value stay at the end in both directions.
  if (!left || !right) return (!left - !right) * (order.down ? -1 : 1);
  return (left.value ?? Infinity) - (right.value ?? Infinity);
};
const sortable = (text, column) => {
  const cell = make("th", null, { scope: "col", "aria-sort": order.column === column ? (order.down ? "descending" : "ascending") : "none" });
  const button = make("button", text, { type: "button" });
  button.addEventListener("click", () => {
    order.down = order.column === column ? !order.down : false;
    order.column = column;
    table();
  });
  cell.append(button);
  return cell;
};
const head = (grid) => {
  const top = make("thead");
  if (grid.columns.some((column) => column.section)) {
    const sections = make("tr", null, { class: "sections" });
    sections.append(make("th"), make("th"));
    for (let start = 0; start < grid.columns.length;) {
      let end = start;
      while (end < grid.columns.length && grid.columns[end].section === grid.columns[start].section) end += 1;
      sections.append(make("th", grid.columns[start].section, { colspan: end - start, scope: "colgroup" }));
      start = end;
    }
    top.append(sections);
  }
  const row = make("tr");
  row.append(sortable("method", -1), make("th", "seeds", { scope: "col" }));
  grid.columns.forEach((column, index) => row.append(sortable(column.heading, index)));
  top.append(row);
  return top;
};
const body = (rows) => {
  const inner = make("tbody");
  for (const { group, index, cells } of rows) {
    const row = make("tr", null, { class: [group.reference ? "reference" : "", chosen.group === index ? "chosen" : ""].join(" ").trim() });
    row.append(make("th", group.label, { scope: "row", title: group.label }), make("td", group.seeds));
    for (const cell of cells) {
      if (cell) row.append(make("td", cell.text, { class: cell.marks.join(" ") }));
      else row.append(make("td", group.failed ? "failed" : "–", { class: group.failed ? "failed" : "" }));
    }
    inner.append(row);
  }
  return inner;
};

// ---------- one measure, every method
const measure = () => {
  const metrics = unique(data.places.map((place) => place.metric));
  if (!metrics.length) { byId("compare").hidden = true; return; }
  const wanted = (state.compare || {}).metric || metrics[0];
  const own = data.places.filter((place) => place.metric === (metrics.includes(wanted) ? wanted : metrics[0]));
  const splits = unique(own.map((place) => place.split));
  const split = splits.includes((state.compare || {}).split) ? state.compare.split : splits[0];
  const subsets = unique(own.filter((place) => place.split === split).map((place) => place.subset));
  const now = controls("compare", {
    metric: { label: "Measure", options: metrics.map((name) => [name, data.places.find((place) => place.metric === name).title]) },
    split: { label: "Data", options: splits.map((name) => [name, name || "whole run"]), value: split },
    subset: { label: "Subset", options: subsets.map((name) => [name, name || "all"]) },
    seed: { label: "Seed", options: seedOptions() },
    ...showOption(),
  }, () => takeShow("compare") || measure());
  const index = placeOf(now.split, now.subset, now.metric);
  const place = data.places[index];
  const rows = data.groups.map((group, number) => ({ group, number, cell: at(number, index, now.seed) })).filter((row) => isShown(row.number) && row.cell && finite(row.cell.value));
  rows.sort((one, other) => (one.cell.value - other.cell.value) * (place.better === "higher" ? -1 : 1));
  const goal = { lower: "↓ lower is better", higher: "↑ higher is better", reference: "→ nearest to retraining is better", "": "no goal" }[place.better];
  byId("compare-lead").textContent = `${place.title}${now.split || now.subset ? `, ${[now.split, now.subset].filter(Boolean).join(" ")} data` : ""}: ${goal}. Grey bars are references.`;
  const { colours, axis } = base();
  const scale = factor(place.unit);
  const bars = rows.map((row) => scale * row.cell.value);
  // One standard deviation, or the interval of a single seed. Shares are cut at 0 and 100%.
  const cut = (value) => Math.max(0, place.unit === "%" ? Math.min(1, value) : value) * scale;
  const interval = ({ value, spread, low, high }) => {
    if (finite(spread)) return value < 0 ? [scale * (value - spread), scale * (value + spread)] : [cut(value - spread), cut(value + spread)];
    return finite(low) && finite(high) ? [scale * low, scale * high] : null;
  };
  const spread = rows.map((row) => interval(row.cell));
  byId("compare-box").style.height = `${110 + 28 * rows.length}px`;
  const suffix = place.unit && place.unit !== "count" ? ` ${place.unit}` : "";
  draw("compare-chart", {
    type: "bar",
    data: {
      labels: rows.map((row) => row.group.label),
      datasets: [
        { data: bars, backgroundColor: rows.map((row) => (row.group.reference ? faded(colours.ink.startsWith("#") ? colours.ink : "#888888", 0.35) : row.group.winner ? colours.accent : faded(colours.accent, 0.55))), borderRadius: 3, barPercentage: 0.8, grouped: false, order: 2 },
        { data: spread, backgroundColor: colours.ink, barThickness: 1.5, grouped: false, order: 1 },
      ],
    },
    options: {
      indexAxis: "y",
      scales: { x: { ...axis(`${place.title}${suffix ? ` in${suffix}` : ""}   ${goal}`) }, y: { ...axis(""), title: { display: false }, grid: { display: false }, ticks: { color: colours.ink, autoSkip: false } } },
      plugins: { legend: { display: false }, tooltip: { filter: (item) => item.datasetIndex === 0, callbacks: { label: (item) => `${rows[item.dataIndex].cell.text}${suffix}` } } },
    },
  });
};
