// Names beside their points. Points that lie close together share one list of names, each with its mark, so that no name
// stands nearer to another's point than to its own.
const LINE = 15, MARK = 8, MOST_NAMES = 8, NAME_FONT = "12px system-ui, sans-serif";
const toBox = (x, y, box) => Math.hypot(Math.max(box.x - x, 0, x - box.x - box.w), Math.max(box.y - y, 0, y - box.y - box.h));
const overlap = (one, other, margin = 0) => one.x < other.x + other.w + margin && other.x < one.x + one.w + margin && one.y < other.y + other.h + margin && other.y < one.y + one.h + margin;
const boundsOf = (points) => {
  const [left, right] = [Math.min(...points.map((p) => p.x)), Math.max(...points.map((p) => p.x))];
  const [top, bottom] = [Math.min(...points.map((p) => p.y)), Math.max(...points.map((p) => p.y))];
  return { x: left - MARK, y: top - MARK, w: right - left + 2 * MARK, h: bottom - top + 2 * MARK };
};
const gap = (one, other) => Math.min(...one.flatMap((p) => other.map((q) => Math.hypot(p.x - q.x, p.y - q.y))));
/** Join points whose marks touch. */
const touching = (points) => {
  let groups = points.map((point) => [point]);
  for (let again = true; again;) {
    again = false;
    for (let i = 0; i < groups.length && !again; i += 1) {
      for (let j = i + 1; j < groups.length && !again; j += 1) {
        if (gap(groups[i], groups[j]) >= 2 * MARK) continue;
        groups = [...groups.filter((_, k) => k !== i && k !== j), [...groups[i], ...groups[j]]];
        again = true;
      }
    }
  }
  return groups;
};
/** Return the lines of a list of names: those that matter most first. */
const linesOf = (points, widthOf) => {
  const sorted = [...points].sort((one, other) => other.weight - one.weight);
  const shown = sorted.length > MOST_NAMES ? sorted.slice(0, MOST_NAMES - 1) : sorted;
  const more = sorted.length - shown.length;
  const lines = shown.map((point) => ({ point, text: point.label.slice(0, 28) }));
  if (more) lines.push({ point: null, text: `and ${more} more` });
  const width = Math.max(...lines.map((line) => widthOf(line) + (points.length > 1 ? 18 : 0)));
  return { lines, w: width + 4, h: LINE * lines.length };
};
/** Yield places for a list of names around its points, the nearest first. */
const spots = function* (bounds, { w, h }) {
  for (const away of [2, 10, 20, 32, 48, 70, 100, 140]) {
    const [left, right, top, bottom] = [bounds.x - w - away, bounds.x + bounds.w + away, bounds.y - h - away, bounds.y + bounds.h + away];
    const [middle, centre] = [bounds.y + bounds.h / 2 - h / 2, bounds.x + bounds.w / 2 - w / 2];
    for (const y of [middle, bounds.y, bounds.y + bounds.h - h, top, bottom]) yield { x: right, y, w, h };
    for (const y of [middle, bounds.y, bounds.y + bounds.h - h, top, bottom]) yield { x: left, y, w, h };
    for (const x of [centre, bounds.x, bounds.x + bounds.w - w]) { yield { x, y: top, w, h }; yield { x, y: bottom, w, h }; }
  }
};
const within = (box, area) => box.x >= area.x && box.y >= area.y && box.x + box.w <= area.x + area.w && box.y + box.h <= area.y + area.h;
/** Tell whether every point would still have its own list as the nearest one. */
const fits = (box, group, placed, points) => {
  if (points.some((p) => overlap(box, { x: p.x - MARK, y: p.y - MARK, w: 2 * MARK, h: 2 * MARK }))) return false;
  if (placed.some((other) => overlap(box, other.box, 3))) return false;
  if (group.some((p) => placed.some((other) => toBox(p.x, p.y, other.box) < toBox(p.x, p.y, box) + 3))) return false;
  return points.every((p) => {
    if (group.includes(p)) return true;
    const own = placed.find((other) => other.group.includes(p));
    return toBox(p.x, p.y, box) > (own ? toBox(p.x, p.y, own.box) + 3 : MARK + 8);
  });
};
/** Return where the names of all points go. Where there is no room for two lists, they become one. */
const arrange = (points, area, widthOf) => {
  let groups = touching(points);
  for (;;) {
    const placed = [];
    groups.sort((one, other) => other.length - one.length || other[0].weight - one[0].weight);
    const crowded = groups.find((group) => {
      const list = linesOf(group, widthOf);
      for (const box of spots(boundsOf(group), list)) {
        if (within(box, area) && fits(box, group, placed, points)) { placed.push({ box, group, lines: list.lines }); return false; }
      }
      return true;
    });
    if (!crowded) return placed;
    if (groups.length === 1) {
      const list = linesOf(crowded, widthOf);
      return [{ box: { x: area.x + area.w - list.w, y: area.y + area.h - list.h, w: list.w, h: list.h }, group: crowded, lines: list.lines }];
    }
    const others = groups.filter((group) => group !== crowded);
    const nearest = others.reduce((best, group) => (gap(crowded, group) < gap(crowded, best) ? group : best));
    groups = [...others.filter((group) => group !== nearest), [...nearest, ...crowded]];
  }
};
/** Draw one list of names: a mark before each if there are several, and a line to a point that is further away. */
const drawList = (ctx, { box, group, lines }) => {
  const { paper, ink, soft, accent } = theme();
  const [first] = group;
  const away = Math.min(...group.map((p) => toBox(p.x, p.y, box)));
  if (away > MARK + 10) {
    const target = group.reduce((best, p) => (toBox(p.x, p.y, box) < toBox(best.x, best.y, box) ? p : best), first);
    ctx.strokeStyle = soft;
    ctx.lineWidth = 0.8;
    ctx.beginPath();
    ctx.moveTo(target.x, target.y);
    ctx.lineTo(Math.min(Math.max(target.x, box.x), box.x + box.w), Math.min(Math.max(target.y, box.y), box.y + box.h));
    ctx.stroke();
  }
  ctx.fillStyle = faded(paper, 0.8);
  ctx.fillRect(box.x, box.y, box.w, box.h);
  lines.forEach(({ point, text }, number) => {
    const y = box.y + LINE * (number + 0.5);
    if (point && group.length > 1) drawMark(ctx, point.group, box.x + 7, y, 4.5);
    ctx.font = point && point.winner ? `600 ${NAME_FONT}` : NAME_FONT;
    ctx.fillStyle = point ? (point.winner ? accent : ink) : soft;
    ctx.fillText(text, box.x + (group.length > 1 ? 18 : 2), y);
  });
};
const names = {
  id: "names",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea } = chart;
    const points = [];
    chart.data.datasets.forEach((dataset, index) => {
      const group = dataset.named;
      const point = group === undefined ? null : chart.getDatasetMeta(index).data[0];
      if (!point || point.skip || (chosen.group !== null && chosen.group !== group)) return;
      if (point.x < chartArea.left || point.x > chartArea.right || point.y < chartArea.top || point.y > chartArea.bottom) return;
      const { winner, named, label, rank, reference } = data.groups[group];
      points.push({ x: point.x, y: point.y, group, label, winner, weight: 200 * winner + 100 * named + 50 * reference - rank });
    });
    const widthOf = ({ point, text }) => {
      ctx.font = point && point.winner ? `600 ${NAME_FONT}` : NAME_FONT;
      return ctx.measureText(text).width;
    };
    const area = { x: chartArea.left, y: 0, w: chart.width - chartArea.left, h: chartArea.bottom };
    ctx.save();
    ctx.textBaseline = "middle";
    chart.lists = points.length ? arrange(points, area, widthOf) : [];
    chart.lists.forEach((list) => drawList(ctx, list));
    ctx.restore();
    chart.written = chart.lists.flatMap(({ lines }) => lines.flatMap(({ point }) => (point ? [point.label] : [])));
  },
};
