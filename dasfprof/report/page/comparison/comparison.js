// The page of a comparison: the verdict, causes of the difference, both runs, and tables.

import { Columns, rowsOf } from "../data.js";
import { absence, byId, download, make, readPage } from "../dom.js";
import { severity } from "../findings.js";
import { counted, csvCell, formatSeconds, visible } from "../format.js";
import { buildTables } from "../tables/sections.js";
import { Tasks } from "../timeline/tasks.js";
import { Pair, SIDES } from "./pair.js";
import { showWaterfall } from "./waterfall.js";

const STATUS_WORDS = {
  new: "only after",
  gone: "only before",
  same: "on both sides",
  "not clear": "runs of one side did not finish",
};

class ComparisonPage {
  constructor(facts) {
    this.facts = facts;
    byId("title").textContent = visible(facts.title);
    byId("subtitle").textContent = visible(facts.subtitle);
    const verdict = byId("verdict");
    if (facts.verdict === "faster" || facts.verdict === "slower") verdict.classList.add(facts.verdict);
    const [first, ...others] = facts.sentences;
    verdict.replaceChildren(
      make("strong", {}, visible(first)),
      ...others.map((sentence) => make("p", {}, visible(sentence))),
    );
    this.waterfall();
    showFindingsOfBoth(byId("findings"), rowsOf(facts.findings));
    byId("notes").replaceChildren(...facts.notes.map((note) => make("li", {}, visible(note))));
    byId("notes-section").hidden = !facts.notes.length;
    this.runs = [];
    const light = (row) => this.lightRow(row);
    buildTables(facts, { selected: { functions: light } });
  }

  waterfall() {
    const section = byId("waterfall-section");
    section.hidden = !this.facts.waterfalls;
    if (section.hidden) return;
    if (this.facts.verdict === "no difference")
      byId("waterfall-title").textContent = "Differences, which may be chance";
    const shown = () => {
      const what = section.querySelector("input[name=waterfall]:checked").value;
      const by = section.querySelector("input[name=by]:checked").value;
      const table = this.facts.waterfalls[what][by];
      const low = showWaterfall(byId("waterfall"), rowsOf(table), by === "step" ? "Step" : "Function");
      byId("waterfall-axis").textContent = low > 0 ? `Bars start at ${formatSeconds(low)}, not at 0.` : "";
      this.waterfallShown = { table, name: `waterfall_${what}_${by}.csv` };
    };
    for (const radio of section.querySelectorAll("input")) radio.addEventListener("change", shown);
    byId("waterfall-by").hidden = !this.facts.steps;
    byId("waterfall-csv").addEventListener("click", () => {
      const { table, name } = this.waterfallShown;
      const lines = rowsOf(table).map((row) => Object.values(row));
      const head = table.columns.map(({ label }) => label);
      download(name, [[head, ...lines].map((cells) => `${cells.map(csvCell).join(",")}\n`).join("")]);
    });
    shown();
  }

  lightRow(row) {
    const { values } = this.facts.tables.functions.columns[0];
    this.pair?.light(row < 0 ? null : values[row]);
  }

  /** Reads the task runs of both sides, and shows them. */
  async read() {
    const runs = [];
    for (const side of SIDES) {
      const { name, timeline } = this.facts.sides[side];
      const tasks = new Tasks(timeline, new Columns(this.facts.columns, `${side}-`));
      await tasks.readPicture();
      await tasks.readKeys();
      runs.push({ name, tasks });
    }
    this.pair = new Pair(byId("pair"), runs);
    document.documentElement.dataset.ready = "whole";
  }
}

/** Lists the findings that are new or gone, and the others in a list that can be opened. */
function showFindingsOfBoth(root, rows) {
  const list = (shown) => make("ol", { class: "findings" }, ...shown.map((row) => bothFinding(row)));
  const changed = rows.filter((row) => row.Status === "new" || row.Status === "gone");
  const others = rows.filter((row) => !changed.includes(row));
  root.replaceChildren(
    changed.length ? list(changed) : absence("No finding is new or gone."),
  );
  if (others.length) {
    const title = `${counted(others.length, "finding")} on both sides, in few runs, or not clear`;
    root.append(make("details", { class: "lesser" }, make("summary", {}, title), list(others)));
  }
}

function bothFinding(row) {
  const counts = `${row["Runs Before"]} runs before, ${row["Runs After"]} after`;
  return make(
    "li",
    { "data-status": row.Status },
    make("span", { class: `status ${row.Status}` }, row.Status),
    severity(row),
    make(
      "div",
      {},
      make("p", { class: "sentence" }, visible(row.Finding)),
      make("p", { class: "evidence" }, `${STATUS_WORDS[row.Status] ?? "in some runs"}: ${counts}`),
    ),
  );
}

const facts = JSON.parse(byId("facts").textContent);
const page = new ComparisonPage(facts);
readPage(() => page.read());
