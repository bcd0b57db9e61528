// The sections of tables that the page holds as lists.

/**
 * Adds a section for each table that the page holds, in their order; `selected` has what is called
 * with a row that is chosen, by the table's name; `about(name)` is called when the name of a
 * function is followed.
 */
function buildTables(facts, { selected = {}, about = null } = {}) {
  for (const [name, table] of Object.entries(facts.tables)) {
    byId("tables").append(tableSection(name, table));
    if (!table.absent) fillTable(name, table, facts, { selected: selected[name], about });
  }
}

function tableSection(name, { title, absent, columns = [] }) {
  const head = make("header", { class: "section-head" }, make("h2", { id: `${name}-title` }, title));
  if (columns.some((column) => column.kind === "text")) {
    const search = { id: `${name}-filter`, type: "search", autocomplete: "off", spellcheck: "false" };
    head.append(make("label", {}, "Filter ", make("input", search)));
  }
  if (!absent) head.append(make("button", { type: "button", id: `${name}-csv` }, "Export CSV"));
  const section = make("section", { "aria-labelledby": `${name}-title` }, head);
  if (hasStatuses(name)) section.append(make("ul", { class: "legend status-legend" }));
  const root = make("div", { id: `${name}-table` });
  if (absent) root.append(make("p", { class: "absent" }, absent));
  section.append(root);
  return section;
}

function hasStatuses(name) {
  return name.endsWith("status");
}

function fillTable(name, table, facts, { selected, about }) {
  const root = byId(`${name}-table`);
  const count = table.columns[0]?.values.length ?? 0;
  const listed = listedColumns(table, about);
  const columns = hasStatuses(name) ? withBars(listed, facts.timeline.statuses) : listed;
  const shown = new DataTable(root, { name: table.title, columns, count, selected });
  noteUnknown(root, table);
  exportButton(`${name}-csv`, shown, table.file);
  filterBox(`${name}-filter`, shown, table);
}

/** Says which columns are left out because nothing in them is known. */
function noteUnknown(root, table) {
  const labels = table.columns.filter((column) => isUnknown(column)).map((column) => column.label);
  if (labels.length)
    root.append(make("p", { class: "absent" }, `NA in every row: ${visible(labels.join(", "))}.`));
}

function exportButton(id, table, file) {
  byId(id).addEventListener("click", async () => download(file, await table.csv()));
}

function filterBox(id, table, facts) {
  const texts = facts.columns.filter((column) => column.kind === "text");
  byId(id)?.addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    const holds = (row) => texts.some(({ values }) => values[row]?.toLowerCase().includes(wanted));
    table.filter(wanted === "" ? null : holds);
  });
}
