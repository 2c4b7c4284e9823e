// ---------- one measure, every method
const GOALS = { lower: "↓ lower is better", higher: "↑ higher is better", reference: "→ nearest to retraining is better", "": "no goal" };
/** Write each value after its bar, so that a bar of length zero is seen too. */
const figures = {
  id: "figures",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea } = chart;
    const [bars, spreads] = [chart.getDatasetMeta(0).data, chart.data.datasets[1].data];
    ctx.save();
    ctx.font = "12px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    ctx.fillStyle = theme().soft;
    chart.figures = bars.map((bar, index) => {
      const end = Math.max(bar.x, ...(spreads[index] || []).map((edge) => chart.scales.x.getPixelForValue(edge)));
      const text = chart.data.texts[index];
      const width = ctx.measureText(text).width;
      const inside = end + 6 + width > chart.width;
      const x = inside ? chartArea.right - width - 4 : end + 6;
      if (inside) { ctx.fillStyle = faded(theme().paper, 0.85); ctx.fillRect(x - 3, bar.y - 8, width + 6, 16); ctx.fillStyle = theme().soft; }
      ctx.fillText(text, x, bar.y);
      return text;
    });
    ctx.restore();
  },
};
const choices = () => {
  const metrics = unique(data.places.map((place) => place.metric));
  const before = state.compare || {};
  const metric = metrics.includes(before.metric) ? before.metric : metrics[0];
  const own = data.places.filter((place) => place.metric === metric);
  const splits = unique(own.map((place) => place.split));
  const split = splits.includes(before.split) ? before.split : splits[0];
  const subsets = unique(own.filter((place) => place.split === split).map((place) => place.subset));
  return {
    metric: { label: "Measure", options: metrics.map((name) => [name, data.places.find((place) => place.metric === name).title]) },
    split: { label: "Data", options: splits.map((name) => [name, name || "whole run"]), value: split },
    subset: { label: "Subset", options: subsets.map((name) => [name, name || "all"]) },
    seed: { label: "Seed", options: seedOptions() },
    ...showOption(),
  };
};
const measure = () => {
  if (!data.places.length) { byId("compare").hidden = true; return; }
  const now = controls("compare", choices(), () => takeShow("compare") || measure());
  const index = placeOf(now.split, now.subset, now.metric);
  const place = data.places[index];
  const rows = data.groups.map((group, number) => ({ group, number, cell: at(number, index, now.seed) })).filter((row) => isShown(row.number) && row.cell && finite(row.cell.value));
  rows.sort((one, other) => (one.cell.value - other.cell.value) * (place.better === "higher" ? -1 : 1));
  const goal = GOALS[place.better];
  const where = [now.split, now.subset].filter(Boolean).join(" ");
  const low = rows.length && place.low !== null ? Math.min(place.low, ...rows.map((row) => row.cell.value)) : null;
  const chance = place.low === 0.5 ? " The axis begins at 0.5, which is chance." : "";
  byId("compare-lead").textContent = `${place.title[0].toUpperCase()}${place.title.slice(1)}${where ? `, ${where} data` : ""}: ${goal}. ${place.meaning}${chance} Grey bars are references, black lines ${now.seed === MEAN ? "show one standard deviation" : "are 95% intervals"}.`;
  const { colours, axis } = base();
  const scale = factor(place.unit);
  // One standard deviation, or the interval of a single seed. Shares are cut at 0 and 100%.
  const cut = (value) => Math.max(0, place.unit === "%" ? Math.min(1, value) : value) * scale;
  const interval = ({ value, spread, low: from, high: to }) => {
    if (finite(spread)) return value < 0 ? [scale * (value - spread), scale * (value + spread)] : [cut(value - spread), cut(value + spread)];
    return finite(from) && finite(to) ? [scale * from, scale * to] : null;
  };
  const suffix = place.unit && place.unit !== "count" ? ` ${place.unit}` : "";
  const grey = faded(colours.soft, 0.6);
  byId("compare-box").style.height = `${110 + 28 * rows.length}px`;
  draw("compare-chart", {
    type: "bar",
    data: {
      labels: rows.map((row) => row.group.label),
      texts: rows.map((row) => `${row.cell.text.split(" ± ")[0]}${suffix}`),
      datasets: [
        { data: rows.map((row) => scale * row.cell.value), base: scale * (place.low || 0), minBarLength: 3, backgroundColor: rows.map((row) => (row.group.reference ? grey : colourOf(row.number))), borderRadius: 2, barPercentage: 0.8, grouped: false, order: 2 },
        { data: rows.map((row) => interval(row.cell)), backgroundColor: colours.ink, barThickness: 1.5, grouped: false, order: 1 },
      ],
    },
    options: {
      indexAxis: "y",
      scales: {
        x: { ...axis(`${place.title}${suffix ? ` in${suffix}` : ""}   ${goal}`), ...(low === null ? {} : { min: low === place.low ? scale * low : Math.floor(10 * scale * low) / 10 }), ...(place.high === null ? {} : { max: scale * place.high }) },
        y: { ...axis(""), title: { display: false }, grid: { display: false }, ticks: { color: colours.ink, autoSkip: false } },
      },
      plugins: { legend: { display: false }, tooltip: { filter: (item) => item.datasetIndex === 0, callbacks: { label: (item) => `${rows[item.dataIndex].cell.text}${suffix}` } } },
    },
    plugins: [figures],
  });
};
