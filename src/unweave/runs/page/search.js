"use strict";
for (const part of document.querySelectorAll(".searched")) {
  const [input, select] = [part.querySelector("input"), part.querySelector("select")];
  const [status, rows] = [part.querySelector("[role=status]"), [...part.querySelectorAll("tbody tr")]];
  const update = () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) {
      const fits = !select.value || row.cells[0].textContent === select.value;
      row.hidden = !fits || !row.textContent.toLowerCase().includes(wanted);
    }
    status.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown.`;
  };
  input.addEventListener("input", update);
  select.addEventListener("change", update);
  part.querySelector(".controls").classList.add("ready");
}
