// The page of a comparison: the verdict, what made the difference, both runs, what differs.

import { Columns, rowsOf } from "../data.js";
import { byId, download, fill, onceParsed } from "../dom.js";
import { severity } from "../findings.js";
import { counted, csvCell, formatSeconds, visible } from "../format.js";
import { buildTables } from "../tables/sections.js";
import { Tasks } from "../timeline/tasks.js";
import { html } from "../vendor/lit-html.js";
import { DifferenceFlame } from "./flame.js";
import { Names, SIDES } from "./names.js";
import { Pair } from "./pair.js";
import { showWaterfall } from "./waterfall.js";

const STATUS_WORDS = { new: "only after", gone: "only before", same: "on both sides" };

class ComparisonPage {
  constructor(facts) {
    this.facts = facts;
    this.names = new Names(facts.renamed);
    byId("title").textContent = visible(facts.title);
    byId("subtitle").textContent = visible(facts.subtitle);
    const verdict = byId("verdict");
    if (facts.verdict === "faster" || facts.verdict === "slower") verdict.classList.add(facts.verdict);
    const [first, ...others] = facts.sentences;
    const rest = others.map((sentence) => html`<p>${visible(sentence)}</p>`);
    fill(verdict, html`<strong>${visible(first)}</strong>${rest}`);
    this.waterfall();
    this.flame();
    showFindingsOfBoth(byId("findings"), rowsOf(facts.findings));
    fill(byId("notes"), facts.notes.map((note) => html`<li>${visible(note)}</li>`));
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
      byId("waterfall-axis").textContent =
        low > 0 ? `The bars begin at ${formatSeconds(low)}, not at 0.` : "";
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
      const tasks = new Tasks(timeline, new Columns(this.facts.columns, { prefix: `${side}-` }));
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
  const list = (own) => html`<ol class="findings">${own.map(bothFinding)}</ol>`;
  const changed = rows.filter((row) => row.Status === "new" || row.Status === "gone");
  const others = rows.filter((row) => !changed.includes(row));
  const title = `${counted(others.length, "finding")} of both sides, or of few runs`;
  fill(root, [
    changed.length ? list(changed) : html`<p class="absent">None is new, none is gone.</p>`,
    others.length ? html`<details class="lesser"><summary>${title}</summary>${list(others)}</details>` : "",
  ]);
}

function bothFinding(row) {
  const { Status: status, "Runs Before": before, "Runs After": after } = row;
  const words = `${STATUS_WORDS[status] ?? "now and then"}: ${before} runs before, ${after} after`;
  return html`<li data-status=${status}>
    <span class="status ${status}">${status}</span>${severity(row)}
    <div><p class="sentence">${visible(row.Finding)}</p><p class="evidence">${words}</p></div>
  </li>`;
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
