// ---------- a page that `unweave report --watch` writes again and again
const QUIET = 5000; // milliseconds without a key or a click before the page is loaded again: nobody is using a menu
let touched = 0;
const labelOf = (index) => (index === null || index === undefined ? null : (data.groups[Number(index)] || {}).label);
/** Take up the choices and the place that the page had before it was loaded again. */
const takePlace = () => {
  const before = data.live && history.state && history.state.unweave;
  if (!before) return;
  const indexOf = (label) => { const found = data.groups.findIndex((group) => group.label === label); return found < 0 ? null : found; };
  Object.assign(state, before.state);
  Object.assign(order, before.order);
  Object.assign(variants, before.variants);
  chosen.group = indexOf(before.chosen);
  if (state.method) state.method.group = String(indexOf(before.method) ?? "");
  history.scrollRestoration = "manual";
  requestAnimationFrame(() => {
    const focused = before.focus && byId(before.focus);
    if (focused) focused.focus({ preventScroll: true });
    scrollTo({ top: before.scroll, behavior: "instant" });
  });
  if (before.paused) byId("live-pause").checked = true;
};
const reload = () => {
  const busy = document.hidden || Date.now() - touched < QUIET || byId("live-pause").checked;
  if (busy) { setTimeout(reload, 1000); return; }
  const focus = document.activeElement ? document.activeElement.id : "";
  const kept = { state, order, variants, chosen: labelOf(chosen.group), method: labelOf((state.method || {}).group), focus, scroll: scrollY, paused: false };
  history.replaceState({ unweave: JSON.parse(JSON.stringify(kept)) }, "");
  location.reload();
};
const keepPlace = () => {
  if (!data.live) return;
  for (const kind of ["keydown", "pointerdown", "wheel", "touchmove"]) addEventListener(kind, () => { touched = Date.now(); }, { passive: true });
  setTimeout(reload, 1000 * data.live.seconds);
};
