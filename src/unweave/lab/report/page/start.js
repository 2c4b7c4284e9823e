// ---------- together
const all = () => { chips(); tradeoff(); table(); measure(); method(); dynamics(); answers(); };
Chart.defaults.font.family = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
Chart.defaults.font.size = 12;
for (const part of ["report", "more"]) byId(part).hidden = false;
takePlace();
all();
for (const link of document.querySelectorAll("nav a")) {
  const target = byId(link.hash.slice(1));
  link.parentElement.hidden = !target || target.hidden;
}
keepPlace();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
const onPaper = (now) => {
  printing = now;
  document.documentElement.classList.toggle("printing", now);
  all();
  allTables(now);
};
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));
