// Everything shown comes from the JSON in #data: numbers as they are stored, and the text that a person reads. Text is
// put into text nodes only.
const data = JSON.parse(document.getElementById("data").textContent);
const chosen = { group: null };
const charts = {};
let printing = false;
const MEAN = "mean";

// ---------- small helpers
const make = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
const unique = (list) => [...new Set(list)];
const byId = (id) => document.getElementById(id);
const words = (name) => name.replaceAll("_", " ");
const finite = (value) => typeof value === "number" && Number.isFinite(value);
const placeOf = (split, subset, metric) =>
  data.places.findIndex((place) => place.split === split && place.subset === subset && place.metric === metric);
const factor = (unit) => ({ "%": 100, MiB: 1 / 2 ** 20 })[unit] || 1;

/** Return what a group measured at a place, as mean or with one seed: {value, spread, text, marks}, or null. */
const at = (group, place, seed) => {
  const found = place < 0 ? null : data.values[group][place];
  if (!found) return null;
  if (seed === MEAN) {
    const [value, spread, text, marks] = found.mean;
    return { value, spread, text, marks };
  }
  const one = found.seeds[seed];
  return one ? { value: one[0], low: one[1], high: one[2], spread: null, text: one[3], marks: one[4] } : null;
};

const theme = () => {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  if (printing) return { ink: "#000", soft: "#444", line: "#ddd", paper: "#fff", accent: "#0b6bb5" };
  return { ink: read("--ink"), soft: read("--soft"), line: read("--line"), paper: read("--paper"), accent: read("--accent") };
};
const faded = (colour, share) => {
  const hex = colour.replace("#", "");
  const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  const [red, green, blue] = [0, 2, 4].map((start) => parseInt(full.slice(start, start + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
};
/** Variants of a method that also ran without one would crowd the plot: they are hidden unless chosen. */
const variants = { shown: false };
const isShown = (index) => variants.shown || !data.groups[index].extra;
const anyVariants = () => data.groups.some((group) => group.extra);
const showOption = () => (anyVariants() ? { show: { label: "Show", options: [["methods", "methods"], ["all", "methods and variants"]], value: variants.shown ? "all" : "methods" } } : {});
/** Apply a section's choice to show variants or not; redraw everything and return true if it changed. */
const takeShow = (section) => {
  const wanted = (state[section] || {}).show === "all";
  if (!anyVariants() || wanted === variants.shown) return false;
  variants.shown = wanted;
  for (const name of Object.keys(state)) if ("show" in state[name]) state[name].show = wanted ? "all" : "methods";
  all();
  return true;
};
const colourOf = (group) => data.groups[group].colour || theme().ink;
const strength = (group) => (chosen.group === null || chosen.group === group ? 1 : 0.18);

// ---------- controls
const state = {};
/** Build the menus of a section. `plan` maps a name to {label, options: [[value, text]], value}. */
const controls = (section, plan, changed) => {
  const box = document.querySelector(`[data-controls="${section}"]`);
  state[section] = state[section] || {};
  box.replaceChildren();
  for (const [name, { label, options, value }] of Object.entries(plan)) {
    const values = options.map(([option]) => String(option));
    const current = values.includes(state[section][name]) ? state[section][name] : String(value ?? values[0]);
    state[section][name] = current;
    const select = make("select", null, { name, id: `${section}-${name}` });
    for (const [option, text] of options) select.append(make("option", text, { value: option }));
    select.value = current;
    select.addEventListener("change", () => {
      state[section][name] = select.value;
      changed(name);
    });
    const wrapped = make("label", label);
    wrapped.append(select);
    box.append(wrapped);
  }
  return state[section];
};
const seedOptions = (mean = true) => [
  ...(mean ? [[MEAN, data.seeds.length > 1 ? "all (mean ± std)" : "all"]] : []),
  ...data.seeds.map((seed) => [seed, `seed ${seed}`]),
];

// ---------- charts
const base = () => {
  const colours = theme();
  const axis = (text) => ({
    title: { display: true, text, color: colours.soft },
    ticks: { color: colours.soft, maxRotation: 0 },
    grid: { color: colours.line },
    border: { color: colours.line },
  });
  return { colours, axis };
};
const draw = (id, config) => {
  if (charts[id]) charts[id].destroy();
  config.options = { responsive: true, maintainAspectRatio: false, animation: false, ...config.options };
  charts[id] = new Chart(byId(id), config);
};
