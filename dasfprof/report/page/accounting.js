// Where every second of every thread went: a bar of classes for the cluster and for each worker.

const MAX_BARS = 24;
const HUES = OTHER;

/** Fills the section; busy classes are solid, idle ones hatched. */
function showAccounting(root, { cluster, workers }) {
  const whole = rowsOf(cluster);
  if (!whole.length) {
    root.append(
      make(
        "p",
        { class: "absent" },
        "No thread of a worker is known, so there is no time to account for.",
      ),
    );
    return;
  }
  const swatches = swatchesOf(whole);
  const bars = make("div", { class: "bars" });
  addBar(bars, "All threads", whole, swatches);
  const byWorker = Map.groupBy(rowsOf(workers), (row) => `${row.Host}\0${row.Worker}`);
  if (byWorker.size > 1) {
    for (const rows of [...byWorker.values()].slice(0, MAX_BARS))
      addBar(bars, rows[0].Worker, rows, swatches);
  }
  if (byWorker.size > MAX_BARS)
    bars.append(make("p", { class: "absent" }, `and ${byWorker.size - MAX_BARS} more workers`));
  const list = make(
    "table",
    { class: "classes" },
    make("caption", {}, "Classes of thread time, of all threads"),
  );
  for (const row of whole) {
    list.append(
      make(
        "tr",
        {},
        make("th", { scope: "row" }, swatch(swatches.get(row.Class)), visible(row.Class)),
        make("td", { class: "number" }, formatSeconds(row["Thread Time (s)"])),
        make("td", { class: "number" }, formatShare(row["Share (%)"] / 100)),
        make("td", { class: "meaning" }, visible(row.Meaning)),
      ),
    );
  }
  root.append(bars, list);
}

/** A table of the page as a list of maps. */
function rowsOf({ columns }) {
  const count = columns[0]?.values.length ?? 0;
  return Array.from({ length: count }, (_, at) =>
    Object.fromEntries(columns.map(({ label, values }) => [label, values[at]])),
  );
}

function swatchesOf(rows) {
  const used = { true: 0, false: 0 };
  return new Map(
    rows.map((row) => {
      const busy = row.Busy;
      return [row.Class, { colour: used[busy]++ % HUES, busy }];
    }),
  );
}

function swatch({ colour, busy }, tag = "i") {
  const element = make(tag, { class: busy ? "busy" : "idle" });
  element.style.backgroundColor = `var(--series-${colour})`;
  return element;
}

function addBar(bars, title, rows, swatches) {
  const bar = make("div", {
    class: "stack",
    role: "img",
    "aria-label": `${visible(title)}: ${rows
      .map((row) => `${row.Class} ${formatShare(row["Share (%)"] / 100)}`)
      .join(", ")}`,
  });
  for (const row of rows) {
    const part = swatch(swatches.get(row.Class), "div");
    part.style.width = `${row["Share (%)"]}%`;
    const seconds = formatSeconds(row["Thread Time (s)"]);
    part.title = `${row.Class}: ${seconds}, ${formatShare(row["Share (%)"] / 100)}`;
    bar.append(part);
  }
  bars.append(make("span", {}, shortened(title, 24)), bar);
}
