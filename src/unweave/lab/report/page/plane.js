// ---------- the trade-off plane
const planeOptions = () => data.planes.map(({ split, metric, words: text }) => [metric === "accuracy" ? split : `${split} ${metric}`, text]);
const keptSubsets = (plane) => ["adjacent", "remote"].filter((name) => placeOf(plane.split, name, plane.metric) >= 0);
const tradeoff = () => {
  const options = planeOptions();
  if (!options.length) { byId("trade-off").hidden = true; return; }
  const wanted = (state.tradeoff || {}).split;
  const plane = data.planes[Math.max(0, options.findIndex(([value]) => value === wanted))];
  const now = controls("tradeoff", {
    split: { label: "Measure", options },
    subset: { label: "Kept data", options: keptSubsets(plane).map((name) => [name, name]) },
    seed: { label: "Seed", options: seedOptions() },
    view: { label: "View", options: [["all", "everything"], ["near", "close-up of the top"]] },
    ...showOption(),
  }, () => takeShow("tradeoff") || tradeoff());
  const places = [placeOf(plane.split, "forget", plane.metric), placeOf(plane.split, now.subset, plane.metric)];
  const full = factor(data.places[places[0]].unit);
  const drawn = planePoints(now, places, full);
  const original = data.groups.findIndex((group) => group.reference && group.label.startsWith("original"));
  const top = original < 0 ? null : at(original, places[1], now.seed);
  const floor = now.view === "near" && top ? full * Math.floor(100 * top.value - 12) / 100 : full * Math.max(0, Math.floor((100 * drawn.lowest / full - 4) / 5) * 5) / 100;
  byId("tradeoff-said").textContent = planeWords(now, plane, drawn.shown);
  const { axis } = base();
  const unitWords = full === 100 ? " in %" : "";
  const tick = (value) => (value < -1e-9 || value > full + 1e-9 ? "" : Math.round(100 * value) / 100);
  draw("tradeoff-chart", {
    type: "scatter",
    data: { datasets: drawn.sets },
    options: {
      scales: {
        x: { ...axis(`forget ${plane.title}${unitWords}   ← better`), min: -0.03 * full, max: 1.03 * full, ticks: { ...axis("").ticks, callback: tick, stepSize: full / 5, includeBounds: false } },
        y: { ...axis(`${now.subset} ${plane.title}${unitWords}   better →`), min: floor, max: 1.02 * full, ticks: { ...axis("").ticks, includeBounds: false, callback: tick } },
      },
      plugins: {
        legend: { display: false },
        tooltip: { filter: (item) => item.raw.label !== undefined, callbacks: {
          title: (items) => (items.length ? items[0].raw.label : ""),
          label: (item) => [`forget ${item.raw.across}${full === 100 ? " %" : ""}`, `${now.subset} ${item.raw.up}${full === 100 ? " %" : ""}`],
        } },
      },
      onClick: (event, found, chart) => {
        const hit = found.map((item) => chart.data.datasets[item.datasetIndex].named).find((group) => group !== undefined);
        choose(hit === undefined ? null : hit);
      },
    },
    plugins: [names],
  });
};
/** Return the points of all methods, the dots of their seeds and the bars of one standard deviation. */
const planePoints = (now, [x, y], full) => {
  const [bars, dots, points, shown] = [[], [], [], []];
  let lowest = full;
  data.groups.forEach((group, index) => {
    if (!isShown(index)) return;
    const [across, up] = [at(index, x, now.seed), at(index, y, now.seed)];
    if (!across || !up || !finite(across.value) || !finite(up.value)) return;
    const { pointStyle, rotation, width } = markOf(index);
    const colour = faded(colourOf(index), strength(index));
    const [cx, cy] = [full * across.value, full * up.value];
    lowest = Math.min(lowest, cy);
    if (now.seed === MEAN) {
      const cut = (value) => Math.min(full, Math.max(0, value));
      const [dx, dy] = [full * (across.spread || 0), full * (up.spread || 0)];
      const cross = [{ x: cut(cx - dx), y: cy }, { x: cut(cx + dx), y: cy }, { x: NaN, y: NaN }, { x: cx, y: cut(cy - dy) }, { x: cx, y: cut(cy + dy) }];
      bars.push({ data: cross, showLine: true, borderColor: faded(colourOf(index), 0.7 * strength(index)), borderWidth: 1, pointRadius: 0, pointHitRadius: 0 });
      const seeds = Object.keys(data.values[index][x].seeds).map((seed) => [seed, at(index, x, seed), at(index, y, seed)]).filter((found) => found[1] && found[2]);
      lowest = Math.min(lowest, ...seeds.map((found) => full * found[2].value));
      dots.push({
        data: seeds.map(([seed, one, two]) => ({ x: full * one.value, y: full * two.value, label: `${group.label}, seed ${seed}`, across: one.text, up: two.text })),
        backgroundColor: faded(colourOf(index), 0.45 * strength(index)), borderWidth: 0, pointRadius: 2.5,
      });
    }
    shown.push({ label: group.label, across, up });
    points.push({
      data: [{ x: cx, y: cy, label: group.label, across: across.text, up: up.text }],
      named: index, pointStyle, rotation, pointRadius: group.winner ? 9 : 7, pointHoverRadius: 10,
      backgroundColor: group.hollow ? theme().paper : colour, borderColor: colour, borderWidth: width,
    });
  });
  return { sets: [...points, ...dots, ...bars], lowest, shown };
};
/** Say what the plot shows, for those who listen and for those who wonder what the dots are. */
const planeWords = (now, plane, shown) => {
  const many = data.seeds.length > 1;
  const marks = now.seed === MEAN && many ? `Each large mark is a method's mean over ${data.seeds.length} seeds, small dots are its seeds, and bars show one standard deviation.` : "Each mark is a run of a method.";
  return `${marks} Shown: ${shown.length} models, ${plane.words} of forget data against ${now.subset} data.`;
};
const choose = (group) => {
  chosen.group = chosen.group === group ? null : group;
  chips();
  tradeoff();
  table();
  if (chosen.group !== null) { (state.method = state.method || {}).group = String(chosen.group); method(); }
};
