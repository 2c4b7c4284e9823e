// The mark of a method: the same colour and shape in plot, lists and legend.
const OPEN = /cross|star/; // shapes without an inside
const markOf = (index) => {
  const { marker, turned, hollow, reference } = data.groups[index];
  const colour = colourOf(index);
  return { pointStyle: marker, rotation: turned ? 180 : 0, colour, fill: hollow ? theme().paper : colour, width: hollow || reference || OPEN.test(marker) ? 2 : 1 };
};
const drawMark = (ctx, index, x, y, radius) => {
  const mark = markOf(index);
  ctx.save();
  [ctx.fillStyle, ctx.strokeStyle, ctx.lineWidth] = [mark.fill, mark.colour, mark.width];
  Chart.helpers.drawPoint(ctx, { pointStyle: mark.pointStyle, rotation: mark.rotation, radius, borderWidth: mark.width }, x, y);
  ctx.restore();
};
const PATHS = {
  circle: "M8 2.5a5.5 5.5 0 1 0 .01 0z",
  rect: "M3.5 3.5h9v9h-9z",
  rectRot: "M8 1.5L14.5 8L8 14.5L1.5 8z",
  triangle: "M8 2.5L14 13H2z",
  cross: "M8 2v12M2 8h12",
  crossRot: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  star: "M8 2v12M2 8h12M3.8 3.8l8.4 8.4M12.2 3.8l-8.4 8.4",
};
/** Return the mark as a small picture. Readers of the screen get the name beside it. */
const picture = (index) => {
  const space = "http://www.w3.org/2000/svg";
  const mark = markOf(index);
  const [svg, path] = [document.createElementNS(space, "svg"), document.createElementNS(space, "path")];
  for (const [name, value] of Object.entries({ viewBox: "0 0 16 16", width: 16, height: 16, class: "own", "aria-hidden": "true" })) svg.setAttribute(name, value);
  const open = OPEN.test(mark.pointStyle);
  const look = { d: PATHS[mark.pointStyle], fill: open ? "none" : mark.fill, stroke: mark.colour, "stroke-width": open ? 2.4 : 1.8 };
  if (mark.rotation) look.transform = "rotate(180 8 8)";
  for (const [name, value] of Object.entries(look)) path.setAttribute(name, value);
  svg.append(path);
  return svg;
};
/** Build the legend: every method with its mark and its verdict. A press shows that method alone. */
const chips = () => {
  const order = data.groups.map((group, index) => index).filter(isShown);
  order.sort((one, other) => data.groups[other].reference - data.groups[one].reference || data.groups[one].rank - data.groups[other].rank);
  byId("tradeoff-chips").replaceChildren(...order.map((index) => {
    const group = data.groups[index];
    const chip = make("button", null, { type: "button", "aria-pressed": String(chosen.group === index) });
    const said = make("span");
    const words = group.failed ? "failed" : group.verdict || (group.reference ? "to compare with" : "");
    said.append(make("b", group.label));
    if (words) said.append(" ", make("small", words));
    if (group.numbers) chip.setAttribute("title", group.numbers);
    chip.append(picture(index), said);
    chip.addEventListener("click", () => { choose(index); const again = [...byId("tradeoff-chips").querySelectorAll("button")][order.indexOf(index)]; if (again) again.focus(); });
    const item = make("li");
    item.append(chip);
    return item;
  }));
};
