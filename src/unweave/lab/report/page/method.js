// ---------- one method, up close
const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const lineColour = (name, index) => (/forget/.test(name) ? "#d55e00" : /adjacent/.test(name) ? "#0072b2" : /remote/.test(name) ? "#009e73" : LINES[(index + 3) % LINES.length]);
const series = (group, seed) => (data.histories[group][seed] || { series: {}, phases: [] });
const method = () => {
  const there = data.groups.map((group, index) => [index, group.label]).filter(([index]) => Object.keys(data.histories[index]).length || Object.keys(data.losses[index]).length);
  if (!there.length) { byId("method").hidden = true; return; }
  const best = there.find(([index]) => data.groups[index].winner) || there.find(([index]) => !data.groups[index].reference) || there[0];
  const wanted = (state.method || {}).group ?? String(best[0]);
  const group = there.some(([index]) => String(index) === wanted) ? wanted : String(best[0]);
  const seeds = unique([...Object.keys(data.histories[group]), ...Object.keys(data.losses[group])]);
  const seed = seeds.includes((state.method || {}).seed) ? state.method.seed : seeds[0];
  const logged = Object.keys(series(group, seed).series);
  const kinds = ["accuracy", "loss"].filter((word) => logged.some((name) => name.endsWith(word)));
  const single = logged.filter((name) => !kinds.some((word) => name.endsWith(word)));
  const own = data.losses[group][seed] || {};
  const places = Object.keys(own).flatMap((split) => Object.keys(own[split]).map((subset) => [`${split} ${subset}`, `${split} ${subset}`]));
  const plan = {
    group: { label: "Method", options: there, value: group },
    seed: { label: "Seed", options: seeds.map((name) => [name, `seed ${name}`]) },
    logged: { label: "Logged", options: [...kinds.map((word) => [`*${word}`, word === "loss" ? "losses" : "accuracies"]), ...single.map((name) => [name, words(name)])] },
    subset: { label: "Losses of", options: places },
  };
  for (const name of ["logged", "subset"]) if (!plan[name].options.length) delete plan[name];
  state.method = { ...(state.method || {}), group };
  const now = controls("method", plan, method);
  logs(now, logged);
  distribution(now, own);
};
const logs = (now, logged) => {
  const shown = logged.filter((name) => (now.logged || "").startsWith("*") ? name.endsWith(now.logged.slice(1)) : name === now.logged);
  byId("history-none").hidden = shown.length > 0;
  byId("history-box").hidden = shown.length === 0;
  if (!shown.length) return;
  const found = series(now.group, now.seed);
  const { colours, axis } = base();
  const scale = (name) => (name.endsWith("accuracy") ? 100 : 1);
  const percent = shown.every((name) => scale(name) === 100);
  const sets = shown.map((name, index) => ({ label: words(name), data: found.series[name].map(([x, y]) => ({ x, y: y * scale(name) })), borderColor: lineColour(name, index), backgroundColor: lineColour(name, index), borderDash: name.startsWith("test") ? [5, 4] : [], borderWidth: 1.6, pointRadius: 0, pointHitRadius: 6 }));
  const phases = found.phases.map(([step, name]) => `${name} from step ${step}`).join(", ");
  const large = !percent && Math.max(...sets.flatMap((set) => set.data.map((point) => point.y))) > 20 && Math.min(...sets.flatMap((set) => set.data.map((point) => point.y))) > 0;
  draw("history-chart", {
    type: "line",
    data: { datasets: sets },
    options: {
      scales: { x: { ...axis(`step   (${phases})`), type: "linear" }, y: { ...axis(`${now.logged.startsWith("*") ? now.logged.slice(1) : words(now.logged)}${percent ? " in %" : ""}${large ? " (logarithmic)" : ""}`), type: large ? "logarithmic" : "linear", ticks: { ...axis("").ticks, ...(large ? { callback: (value) => (Number.isInteger(Math.round(1e6 * Math.log10(value)) / 1e6) ? String(value) : "") } : {}) } } },
      interaction: { mode: "nearest", axis: "x", intersect: false },
      plugins: { legend: { labels: { color: colours.ink, boxWidth: 14, boxHeight: 2 } }, tooltip: { callbacks: { title: (items) => `step ${items[0].raw.x}` } } },
    },
  });
};
const cumulative = ({ edges, counts }) => {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let sum = 0;
  return edges.map((edge, index) => { if (index) sum += counts[index - 1]; return { x: edge, y: (100 * sum) / total }; });
};
const distribution = (now, own) => {
  const [split, subset] = (now.subset || " ").split(" ");
  const there = Boolean(own[split] && own[split][subset]);
  byId("losses-none").hidden = there;
  byId("losses-box").hidden = !there;
  if (!there) return;
  const { colours, axis } = base();
  const set = (group, colour, dash) => {
    const found = ((data.losses[group][now.seed] || {})[split] || {})[subset];
    return found ? [{ label: data.groups[group].label, data: cumulative(found), borderColor: colour, backgroundColor: colour, borderDash: dash, borderWidth: dash.length ? 1.3 : 2, pointRadius: 0, pointHitRadius: 6 }] : [];
  };
  const others = data.groups.flatMap((group, index) => (group.reference && String(index) !== now.group ? set(index, colours.soft, group.label.startsWith("retrain") ? [6, 4] : [2, 3]) : []));
  const stages = now.subset === "train forget" ? Object.entries(data.stages[now.group][now.seed] || {}) : [];
  const between = stages.map(([name, found]) => ({ label: `after ${name}`, data: cumulative(found), borderColor: colourOf(now.group), backgroundColor: colourOf(now.group), borderDash: [8, 3], borderWidth: 1.6, pointRadius: 0, pointHitRadius: 6 }));
  draw("losses-chart", {
    type: "line",
    data: { datasets: [...set(now.group, colourOf(now.group), []), ...between, ...others] },
    options: {
      scales: { x: { ...axis(`loss of a ${now.subset} sample`), type: "linear", min: 0 }, y: { ...axis("% of samples with at most this loss"), min: 0, max: 100 } },
      interaction: { mode: "nearest", axis: "x", intersect: false },
      plugins: { legend: { labels: { color: colours.ink, boxWidth: 14, boxHeight: 2 } }, tooltip: { callbacks: { title: (items) => `loss ${items[0].raw.x.toFixed(3)}`, label: (item) => `${item.dataset.label}: ${item.raw.y.toFixed(1)} %` } } },
    },
  });
};
