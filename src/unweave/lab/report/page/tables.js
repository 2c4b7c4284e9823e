// ---------- tables that sort
const order = { column: null, down: false };
const table = () => {
  if (!data.grids.length) { byId("tables").hidden = true; return; }
  const now = controls("table", {
    grid: { label: "Table", options: data.grids.map((grid, index) => [index, grid.title.split(" · ")[0]]) },
    seed: { label: "Seed", options: seedOptions() },
    ...showOption(),
  }, (name) => { if (name === "grid") order.column = null; if (!takeShow("table")) table(); });
  const grid = data.grids[Number(now.grid)];
  const rows = rowsOf(grid, now.seed);
  if (order.column !== null) rows.sort((one, other) => compare(one, other) * (order.down ? -1 : 1));
  const caption = `${grid.title}. ${seedWords(now.seed)}`;
  byId("main-table").replaceChildren(make("caption", caption), head(grid, true), body(rows));
  byId("table-note").replaceChildren(...meaningsOf(grid));
  byId("table-said").textContent = `${caption} ${rows.length} rows${order.column === null ? "" : `, sorted by ${order.column < 0 ? "method" : grid.columns[order.column].heading}`}.`;
};
const seedWords = (seed) => (seed !== MEAN ? `Seed ${seed} alone.` : data.seeds.length > 1 ? "Mean ± standard deviation over seeds." : "One seed.");
const rowsOf = (grid, seed) => data.groups.map((group, index) => ({ group, index, cells: grid.columns.map((column) => at(index, column.place, seed)) })).filter(({ index }) => isShown(index));
/** Return what the measures of a table mean, each once. */
const meaningsOf = (grid) => {
  const metrics = unique(grid.columns.map((column) => data.places[column.place].metric));
  return metrics.map((metric) => data.places.find((place) => place.metric === metric)).filter((place) => place.meaning).flatMap((place) => [make("dt", place.title), make("dd", place.meaning)]);
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
  const button = make("button", text, { type: "button", id: `sort-${column}` });
  button.addEventListener("click", () => {
    order.down = order.column === column ? !order.down : false;
    order.column = column;
    table();
    byId(`sort-${column}`).focus(); // the table is new, so the place of the keyboard would be lost
  });
  cell.append(button);
  return cell;
};
const head = (grid, sorts) => {
  const top = make("thead");
  if (grid.columns.some((column) => column.section)) {
    const sections = make("tr", null, { class: "sections" });
    sections.append(make("td", null, { colspan: 2 }));
    for (let start = 0; start < grid.columns.length;) {
      let end = start;
      while (end < grid.columns.length && grid.columns[end].section === grid.columns[start].section) end += 1;
      sections.append(make("th", grid.columns[start].section, { colspan: end - start, scope: "colgroup" }));
      start = end;
    }
    top.append(sections);
  }
  const row = make("tr");
  const heading = (text, column) => (sorts ? sortable(text, column) : make("th", text, { scope: "col" }));
  row.append(heading("method", -1), make("th", "seeds", { scope: "col" }));
  grid.columns.forEach((column, index) => row.append(heading(column.heading, index)));
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
/** On paper nothing can be chosen: every other table follows the one that is shown. */
const allTables = (shown) => {
  const others = shown ? data.grids.filter((grid, index) => String(index) !== (state.table || {}).grid) : [];
  byId("all-tables").replaceChildren(...others.map((grid) => {
    const one = make("table");
    one.append(make("caption", `${grid.title}. ${seedWords(MEAN)}`), head(grid, false), body(rowsOf(grid, MEAN)));
    return one;
  }));
};
