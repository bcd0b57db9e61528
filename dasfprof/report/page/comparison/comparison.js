// The page of a comparison: the verdict, what made the difference, both runs, what differs.

import { Columns, rowsOf } from "../data.js";
import { byId, download, make, onceParsed } from "../dom.js";
import { severity } from "../findings.js";
import { counted, csvCell, formatSeconds, visible } from "../format.js";
import { buildTables } from "../tables/sections.js";
import { Tasks } from "../timeline/tasks.js";
import { DifferenceFlame } from "./flame.js";
import { Names, SIDES } from "./names.js";
import { Pair } from "./pair.js";
import { showWaterfall } from "./waterfall.js";

const STATUS_WORDS = {
  new: "only after",
  gone: "only before",
  same: "on both sides",
  "not clear": "the runs of a side did not end",
};

class ComparisonPage {
  constructor(facts) {
    this.facts = facts;
    this.names = new Names(facts.renamed);
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
    this.flame();
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
      byId("waterfall-title").textContent = "What differs as seen: chance may be the cause";
    const shown = () => {
      const what = section.querySelector("input[name=waterfall]:checked").value;
      const by = section.querySelector("input[name=by]:checked").value;
      const table = this.facts.waterfalls[what][by];
      const low = showWaterfall(byId("waterfall"), rowsOf(table), by === "step" ? "Step" : "Function");
      byId("waterfall-axis").textContent = low > 0 ? `The bars begin at ${formatSeconds(low)}, not at 0.` : "";
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

  flame() {
    const section = byId("flame-section");
    const rows = rowsOf(this.facts.calls);
    section.hidden = !rows.length;
    if (section.hidden) return;
    const flame = new DifferenceFlame(byId("flame"), rows);
    for (const radio of section.querySelectorAll("input"))
      radio.addEventListener("change", () => flame.widthBy(radio.value));
  }

  lightRow(row) {
    const { values } = this.facts.tables.functions.columns[0];
    this.pair?.light(row < 0 ? null : values[row]);
  }

  /** Reads the task runs of both; `data-ready` tells how far it came. */
  async read() {
    const runs = [];
    for (const side of SIDES) {
      const { name, timeline } = this.facts.sides[side];
      const tasks = new Tasks(timeline, new Columns(this.facts.columns, `${side}-`));
      await tasks.readPicture();
      await tasks.readKeys();
      runs.push({ name, tasks });
    }
    this.pair = new Pair(byId("pair"), runs, this.names);
    document.documentElement.dataset.ready = "whole";
  }
}

/** Lists findings by what became of them; those of both sides are folded away. */
function showFindingsOfBoth(root, rows) {
  const list = (own) => make("ol", { class: "findings" }, ...own.map((row) => bothFinding(row)));
  const changed = rows.filter((row) => row.Status === "new" || row.Status === "gone");
  const others = rows.filter((row) => !changed.includes(row));
  root.replaceChildren(
    changed.length ? list(changed) : make("p", { class: "absent" }, "None is new, none is gone."),
  );
  if (others.length) {
    const title = `${counted(others.length, "finding")} of both sides, of few runs, or not clear`;
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
      make("p", { class: "evidence" }, `${STATUS_WORDS[row.Status] ?? "now and then"}: ${counts}`),
    ),
  );
}

const facts = JSON.parse(byId("facts").textContent);
const page = new ComparisonPage(facts);
onceParsed(() =>
  page.read().catch((error) => {
    byId("failed").textContent = `This browser could not read all of the comparison: ${error}`;
    byId("failed").hidden = false;
    throw error;
  }),
);
