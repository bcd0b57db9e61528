// The report of another run, compared with this one in the page: its file is dropped or chosen.

import { Columns } from "../data.js";
import { byId } from "../dom.js";
import { formatSeconds, shortened, visible } from "../format.js";
import { median, sumOf } from "../numbers.js";
import { listedColumns } from "../tables/columns.js";
import { DataTable } from "../tables/table.js";
import { Tasks } from "../timeline/tasks.js";
import { boundsOf } from "./axis.js";
import { Names, SIDES } from "./names.js";
import { Pair } from "./pair.js";

/** The elements of a report's file, found without making a page of it. */
class ReportFile {
  constructor(text) {
    this.text = text;
  }

  getElementById(id) {
    const opening = `id="${id}">`;
    const at = this.text.indexOf(opening);
    if (at < 0) return null;
    const begin = at + opening.length;
    const textContent = this.text.slice(begin, this.text.indexOf("</script>", begin));
    return { textContent, remove: () => {} };
  }
}

export class OtherReport {
  /** `own`: the page's facts and task runs. */
  constructor(own) {
    this.own = own;
    const input = byId("other-report");
    byId("compare-with").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) this.compare(input.files[0]);
      input.value = "";
    });
    const holdsFile = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => holdsFile(event) && event.preventDefault());
    addEventListener("drop", (event) => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      if (event.dataTransfer.files.length) this.compare(event.dataTransfer.files[0]);
    });
  }

  /** Shows this run beside that of a file; says so where it is no report that can be read. */
  async compare(file) {
    const section = byId("compared");
    section.hidden = false;
    const failed = byId("compared-failed");
    failed.hidden = true;
    byId("compared-parts").hidden = true;
    try {
      this.show(await this.read(file));
      byId("compared-parts").hidden = false;
    } catch (error) {
      failed.textContent = visible(`${shortened(file.name, 80)} cannot be compared: ${error.message}`);
      failed.hidden = false;
    }
    section.scrollIntoView();
  }

  async read(file) {
    const report = new ReportFile(await file.text());
    const element = report.getElementById("facts");
    if (!element) throw new Error("it is no report of a run by dasfprof.");
    let facts;
    try {
      facts = JSON.parse(element.textContent);
    } catch {
      throw new Error("the file is damaged or not complete.");
    }
    if (facts.data !== this.own.facts.data)
      throw new Error("it is no report of a run, or one by another version of dasfprof: write it anew.");
    try {
      const tasks = new Tasks(facts.timeline, new Columns(facts.columns, { from: report }));
      await tasks.readPicture();
      await tasks.readKeys();
      return { facts, tasks };
    } catch {
      throw new Error("the file is damaged or not complete.");
    }
  }

  show(other) {
    const begin = ({ facts }) => facts.timeline.begin ?? Infinity;
    const runs = begin(other) < begin(this.own) ? [other, this.own] : [this.own, other];
    const sides = runs.map(({ facts, tasks }) => ({ name: facts.title, tasks }));
    const names = new Names();
    byId("compared-words").textContent = visible(wordsOf(runs));
    const pair = new Pair(byId("compared-timelines"), sides, names);
    const table = functionTable(pair);
    const root = byId("compared-functions");
    this.table = new DataTable(root, {
      name: "Functions of both runs",
      columns: listedColumns(table),
      count: table.columns[0].values.length,
      selected: (row) => pair.light(row < 0 ? null : table.columns[0].values[row]),
    });
  }
}

function wordsOf(runs) {
  const [first, second] = runs;
  const same =
    first.facts.timeline.begin === second.facts.timeline.begin &&
    first.tasks.count === second.tasks.count;
  if (same && first.facts.title === second.facts.title) return "This is the same run twice.";
  if (runs.some(({ tasks }) => !tasks.count)) return "One of the two has no task run.";
  const walls = runs.map(({ tasks }) => boundsOf(tasks)).map(([begin, end]) => end - begin);
  const change = walls[1] - walls[0];
  const words = `${formatSeconds(Math.abs(change))} ${change < 0 ? "less" : "more"}`;
  const open = runs.filter(({ facts }) => facts.summary.unfinished > 0);
  const unfinished = open.map(({ facts }) => ` ${facts.title} did not end.`).join("");
  return (
    `From ${formatSeconds(walls[0])} to ${formatSeconds(walls[1])}, ${words}.${unfinished} Of one run ` +
    "each: chance may be the cause. dasfprof compare says how certain a difference is."
  );
}

/** What ran of each function in both runs, as a table of the page. */
function functionTable({ seconds }) {
  const labels = [...new Set(seconds.flatMap((side) => [...side.keys()]))];
  const figure = (side, of) =>
    labels.map((label) => (seconds[side].has(label) ? of(seconds[side].get(label)) : null));
  const totals = SIDES.map((_, side) => figure(side, sumOf).map((total) => total ?? 0));
  const difference = labels.map((_, at) => totals[1][at] - totals[0][at]);
  const order = [...labels.keys()].sort((a, b) => Math.abs(difference[b]) - Math.abs(difference[a]));
  const column = (label, values, kind = "number") => ({
    label,
    kind,
    values: order.map((at) => values[at]),
  });
  return {
    columns: [
      column("Function", labels, "text"),
      column("Task Runs Before", figure(0, (own) => own.length)),
      column("Task Runs After", figure(1, (own) => own.length)),
      column("Median Before (s)", figure(0, median)),
      column("Median After (s)", figure(1, median)),
      column("Total Before (s)", totals[0]),
      column("Total After (s)", totals[1]),
      column("Difference (s)", difference),
    ],
  };
}
