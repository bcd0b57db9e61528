// The sections of tables that the page holds as lists.

/** The tables that the page holds as lists: their sections, titles and files. */
const TABLES = [
  ["steps", "Steps of the pipeline", "step_bottleneck.csv"],
  ["functions", "Functions by worker", "function_bottleneck.csv"],
  ["status", "Status of functions", "function_status.csv"],
  ["step-status", "Status of steps", "step_status.csv"],
  ["balance", "Tasks in memory", "task_balance.csv"],
  ["events", "Events of user code", "own_events.csv"],
];

function buildTable(name, title, file, facts) {
  const root = byId(`${name}-table`);
  const table = facts.tables[name];
  if (!table) {
    byId(`${name}-section`).hidden = true;
    return;
  }
  if (table.absent) {
    root.append(make("p", { class: "absent" }, table.absent));
    byId(`${name}-csv`).hidden = true;
    return;
  }
  const count = table.columns[0]?.values.length ?? 0;
  const listed = listedColumns(table);
  const columns = name.endsWith("status") ? withBars(listed, facts.timeline.statuses) : listed;
  const shown = new DataTable(root, { name: title, columns, count });
  noteUnknown(root, table);
  exportButton(`${name}-csv`, shown, file);
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
