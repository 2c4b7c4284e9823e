// ---------- what language models answer
const MOST_ROWS = 50;
const said = (group, subset, place) => (data.answers.said[group] ? data.answers.said[group][subset][place] : null);
const referenceOf = (method) => data.groups.findIndex((group, index) => group.reference && group.label.startsWith(method) && data.answers.said[index]);
const answers = () => {
  if (!data.answers) return;
  const there = data.groups.map((group, index) => [index, group.label]).filter(([index]) => data.answers.said[index] && !data.groups[index].reference && isShown(index));
  const best = there.find(([index]) => data.groups[index].winner) || there[0];
  const now = controls("answers", {
    ...(there.length ? { group: { label: "Method", options: there, value: best[0] } } : {}),
    subset: { label: "Questions of", options: Object.keys(data.answers.subsets).map((name) => [name, `${name} data`]) },
  }, answers);
  const search = make("input", null, { type: "search", id: "answers-search", placeholder: "a name, a word" });
  search.value = now.search || "";
  search.addEventListener("input", () => { state.answers.search = search.value; answerRows(); });
  const wrapped = make("label", "Search");
  wrapped.append(search);
  document.querySelector('[data-controls="answers"]').append(wrapped);
  answerRows();
};
const answerRows = () => {
  const { group, subset, search } = state.answers;
  const columns = [["before", referenceOf("original")], ...(group === undefined ? [] : [[`after ${data.groups[group].label}`, Number(group)]]), ["retrained", referenceOf("retrain")]].filter(([, index]) => index >= 0);
  const { questions, truths, all } = data.answers.subsets[subset];
  const rows = questions.map((question, place) => [question, truths[place], ...columns.map(([, index]) => said(index, subset, place))]);
  const wanted = (search || "").trim().toLowerCase();
  const found = rows.filter((row) => row.some((text) => text.toLowerCase().includes(wanted)));
  const top = make("tr");
  for (const heading of ["question", "truth", ...columns.map(([heading]) => heading)]) top.append(make("th", heading, { scope: "col" }));
  const outer = make("thead"), inner = make("tbody");
  outer.append(top);
  for (const row of found.slice(0, MOST_ROWS)) {
    const line = make("tr");
    line.append(make("th", row[0], { scope: "row" }), ...row.slice(1).map((text, place) => make("td", text || "(nothing)", { class: place > 0 && text === row[1] ? "same" : "" })));
    inner.append(line);
  }
  byId("answers-table").replaceChildren(outer, inner);
  const shown = found.length > MOST_ROWS ? ` The first ${MOST_ROWS} are shown.` : "";
  const part = questions.length < all ? ` The page holds ${questions.length} of ${all} questions, evenly spread; answers.json in the folder of a run has all.` : "";
  byId("answers-said").textContent = `${found.length} of ${questions.length} questions${wanted ? ` with “${search.trim()}”` : ""}.${shown}${part}`;
};
