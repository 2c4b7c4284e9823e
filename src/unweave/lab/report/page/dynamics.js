// ---------- the last stage step by step, one line per watched method
const WATCHED = "forget_accuracy";
const dynamics = () => {
  if (!byId("dynamics-chart")) return;
  const watched = data.groups.map((group, index) => index).filter((index) => Object.values(data.histories[index]).some((run) => WATCHED in run.series));
  const box = byId("dynamics-chart").closest(".scripted");
  box.hidden = !watched.length;
  if (!watched.length) return;
  const logged = unique(watched.flatMap((index) => Object.values(data.histories[index]).flatMap((run) => Object.keys(run.series))));
  const shown = ["watched_forget_loss", ...logged.filter((name) => name.endsWith("accuracy"))].filter((name) => logged.includes(name));
  const now = controls("dynamics", {
    logged: { label: "Show", options: shown.map((name) => [name, words(name).replace("watched ", "")]), value: WATCHED },
    seed: { label: "Seed", options: seedOptions() },
  }, dynamics);
  const scale = now.logged.endsWith("accuracy") ? 100 : 1;
  const { colours, axis } = base();
  const sets = watched.flatMap((index, place) => {
    const colour = colourOf(index);
    const dash = [[], [7, 4], [2, 3], [10, 3, 2, 3]][watched.slice(0, place).filter((other) => colourOf(other) === colour).length % 4];
    const runs = Object.entries(data.histories[index]).filter(([seed]) => now.seed === MEAN || seed === now.seed);
    const sums = new Map();
    for (const [, run] of runs) {
      const first = run.phases[run.phases.length - 1][0];
      for (const [step, value] of run.series[now.logged] || []) {
        if (step < first || !finite(value)) continue;
        const [sum, count] = sums.get(step - first) || [0, 0];
        sums.set(step - first, [sum + scale * value, count + 1]);
      }
    }
    const points = [...sums].sort(([one], [other]) => one - other).map(([x, [sum, count]]) => ({ x, y: sum / count }));
    return points.length ? [{ label: data.groups[index].label, data: points, borderColor: colour, backgroundColor: colour, borderDash: dash, borderWidth: 2, pointRadius: 2, pointHitRadius: 6 }] : [];
  });
  const title = words(now.logged).replace("watched ", "");
  draw("dynamics-chart", {
    type: "line",
    data: { datasets: sets },
    options: {
      scales: { x: { ...axis("step of the last stage"), type: "linear", min: 0 }, y: { ...axis(`${title}${scale === 100 ? " in %" : ""}${now.seed === MEAN && data.seeds.length > 1 ? ", mean over seeds" : ""}`), min: 0, ...(scale === 100 ? { max: 102, ticks: { ...axis("").ticks, stepSize: 20, includeBounds: false, callback: (value) => (value > 100 ? "" : value) } } : {}) } },
      interaction: { mode: "nearest", axis: "x", intersect: false },
      plugins: { legend: { labels: { color: colours.ink, boxWidth: 14, boxHeight: 2 } }, tooltip: { callbacks: { title: (items) => `step ${items[0].raw.x}`, label: (item) => `${item.dataset.label}: ${item.raw.y.toFixed(scale === 100 ? 1 : 3)}${scale === 100 ? " %" : ""}` } } },
    },
  });
};
