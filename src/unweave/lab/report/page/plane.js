// The trade-off plane.
/** Write names beside points: always for methods in the headline, for others if there is room. Hovering and the chips
    show the rest. */
const names = {
  id: "names",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea } = chart;
    const taken = [];
    chart.written = [];
    const hits = (box) => taken.some((other) => box.x < other.x + other.w && other.x < box.x + box.w && box.y < other.y + other.h && other.y < box.y + box.h);
    ctx.save();
    ctx.font = "12px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    const points = [];
    chart.data.datasets.forEach((dataset, index) => {
      if (dataset.named === undefined) return;
      const point = chart.getDatasetMeta(index).data[0];
      if (!point || point.skip) return;
      if (point.x < chartArea.left || point.x > chartArea.right || point.y < chartArea.top || point.y > chartArea.bottom) return;
      points.push({ point, group: dataset.named });
      taken.push({ x: point.x - 7, y: point.y - 7, w: 14, h: 14 });
    });
    const rank = (group) => 2 * group.winner + group.named;
    points.sort((one, other) => rank(data.groups[other.group]) - rank(data.groups[one.group]));
    for (const { point, group } of points) {
      if (chosen.group !== null && chosen.group !== group) continue;
      const { winner, named, label } = data.groups[group];
      const text = label.slice(0, 28);
      ctx.font = winner ? "600 12px system-ui, sans-serif" : "12px system-ui, sans-serif";
      const width = ctx.measureText(text).width;
      const spots = [[11, -8], [11, 9], [-11 - width, -9], [-11 - width, 9], [-width / 2, -17], [-width / 2, 17], [11, -24], [11, 25]];
      const near = spots.length;
      // A method in the headline has its name in a crowd too: further away, with a line to its point.
      if (named) for (let far = 40; far < 400; far += 15) spots.push([14, far], [-14 - width, far], [14, -far], [-14 - width, -far]);
      const boxes = spots.map(([right, down]) => ({ x: point.x + right, y: point.y + down - 7, w: width, h: 14 }));
      const inside = (box) => box.x >= chartArea.left && box.x + box.w <= chartArea.right + 4 && box.y >= 0 && box.y + box.h <= chartArea.bottom;
      let place = boxes.findIndex((box) => inside(box) && !hits(box));
      if (place < 0 && named) place = Math.max(0, boxes.findIndex(inside));
      if (place < 0) continue;
      const box = boxes[place];
      taken.push(box);
      chart.written.push(label);
      ctx.fillStyle = winner ? theme().accent : theme().ink;
      ctx.fillText(text, box.x, box.y + 7);
      if (place < near) continue;
      ctx.strokeStyle = ctx.fillStyle;
      ctx.lineWidth = 0.8;
      ctx.beginPath();
      ctx.moveTo(point.x, point.y);
      ctx.lineTo(box.x < point.x ? box.x + width + 3 : box.x - 3, box.y + 7);
      ctx.stroke();
    }
    ctx.restore();
  },
};

// ---------- the trade-off plane
const tradeoff = () => {
  const splits = unique(data.places.filter((p) => p.metric === "accuracy" && p.subset === "forget").map((p) => p.split));
  const kept = ["adjacent", "remote"].filter((name) => data.places.some((p) => p.metric === "accuracy" && p.subset === name));
  if (!splits.length || !kept.length) { byId("trade-off").hidden = true; return; }
  const view = [["all", "everything"], ["near", "close-up of the top"]];
  const now = controls("tradeoff", {
    split: { label: "Data", options: splits.map((name) => [name, name]), value: splits.includes("test") ? "test" : splits[0] },
    subset: { label: "Kept", options: kept.map((name) => [name, name]) },
    seed: { label: "Seed", options: seedOptions() },
    view: { label: "View", options: view },
    ...showOption(),
  }, () => takeShow("tradeoff") || tradeoff());
  const [x, y] = [placeOf(now.split, "forget", "accuracy"), placeOf(now.split, now.subset, "accuracy")];
  const { colours, axis } = base();
  const [bars, dots, points] = [[], [], []];
  let lowest = 100;
  data.groups.forEach((group, index) => {
    if (!isShown(index)) return;
    const [across, up] = [at(index, x, now.seed), at(index, y, now.seed)];
    if (!across || !up || !finite(across.value) || !finite(up.value)) return;
    const colour = faded(colourOf(index), strength(index));
    const [cx, cy] = [100 * across.value, 100 * up.value];
    lowest = Math.min(lowest, cy);
    if (now.seed === MEAN) {
      const cut = (value) => Math.min(100, Math.max(0, value));
      const [dx, dy] = [100 * (across.spread || 0), 100 * (up.spread || 0)];
      const cross = [{ x: cut(cx - dx), y: cy }, { x: cut(cx + dx), y: cy }, { x: NaN, y: NaN }, { x: cx, y: cut(cy - dy) }, { x: cx, y: cut(cy + dy) }];
      bars.push({ data: cross, showLine: true, borderColor: colour, borderWidth: 1, pointRadius: 0, pointHitRadius: 0 });
      const seeds = Object.keys(data.values[index][x].seeds).map((seed) => [seed, at(index, x, seed), at(index, y, seed)]);
      const shown = seeds.filter((found) => found[1] && found[2]);
      lowest = Math.min(lowest, ...shown.map((found) => 100 * found[2].value));
      dots.push({
        data: shown.map(([seed, one, two]) => ({ x: 100 * one.value, y: 100 * two.value, label: `${group.label}, seed ${seed}`, across: one.text, up: two.text })),
        backgroundColor: faded(colourOf(index), 0.45 * strength(index)), borderWidth: 0, pointRadius: 2.5,
      });
    }
    points.push({
      data: [{ x: cx, y: cy, label: group.label, across: across.text, up: up.text }],
      named: index, pointStyle: group.marker, rotation: group.turned ? 180 : 0, pointRadius: group.winner ? 9 : 7, pointHoverRadius: 10,
      backgroundColor: group.reference ? colours.paper : colour, borderColor: colour, borderWidth: group.reference || /cross|star/.test(group.marker) ? 2.5 : 1,
    });
  });
  const original = data.groups.findIndex((group) => group.reference && group.label.startsWith("original"));
  const top = original < 0 ? null : at(original, y, now.seed);
  const floor = now.view === "near" && top ? Math.floor(100 * top.value - 12) : Math.max(0, Math.floor((lowest - 4) / 5) * 5);
  draw("tradeoff-chart", {
    type: "scatter",
    data: { datasets: [...points, ...dots, ...bars] },
    options: {
      scales: {
        x: { ...axis(`forget accuracy in %   ← better`), min: -3, max: 103, ticks: { ...axis("").ticks, callback: (value) => (value < 0 || value > 100 ? "" : value), stepSize: 20, includeBounds: false } },
        y: { ...axis(`${now.subset} accuracy in %   better →`), min: floor, max: 102, ticks: { ...axis("").ticks, includeBounds: false, callback: (value) => (value > 100 ? "" : value) } },
      },
      plugins: {
        legend: { display: false },
        tooltip: { filter: (item) => item.raw.label !== undefined, callbacks: {
          title: (items) => (items.length ? items[0].raw.label : ""),
          label: (item) => [`forget ${item.raw.across} %`, `${now.subset} ${item.raw.up} %`],
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

const choose = (group) => {
  chosen.group = chosen.group === group ? null : group;
  chips();
  tradeoff();
  table();
  if (chosen.group !== null) { (state.method = state.method || {}).group = String(chosen.group); method(); }
};
const chips = () => {
  byId("tradeoff-chips").replaceChildren(...data.groups.flatMap((group, index) => {
    if (!isShown(index)) return [];
    const chip = make("button", null, { type: "button", "aria-pressed": String(chosen.group === index) });
    const dot = make("i");
    dot.style.backgroundColor = colourOf(index);
    chip.append(dot, make("span", group.failed ? `${group.label} (failed)` : group.label));
    chip.addEventListener("click", () => choose(index));
    return [chip];
  }));
};
