// The drawer of a function: how long its task runs took, which were slowest, on which workers, in
// which lines, and its code.

import { byId, fill, meter } from "../dom.js";
import { lineList, sourceTable } from "../flame/sources.js";
import { counted, formatCell, formatCount, formatSeconds, shortened, visible } from "../format.js";
import { median, sumOf } from "../numbers.js";
import { html } from "../vendor/lit-html.js";
import { histogramChart } from "./histogram.js";
/** @import { Flames } from "../flame/flames.js" */
/** @import { Tasks } from "../timeline/tasks.js" */

const SLOWEST = 10;
const WORKERS_SHOWN = 24;
const NO_RUN = html`<p class="absent">This page has no task run of a function of this name.</p>`;

/** A button that opens the drawer of a function; `waits`: only once the page is read. */
export function functionButton(name, about, { waits = false } = {}) {
  return html`<button
    type="button"
    class="link"
    title="All task runs of this function"
    ?disabled=${waits}
    ?data-waits=${waits}
    @click=${() => about(name)}
  >${shortened(name, 60)}</button>`;
}

export class Drawer {
  dialog; timeline;
  /** @type {Tasks} */ tasks;
  /** @type {Flames} */ flames;

  constructor(dialog, { tasks, flames, timeline }) {
    Object.assign(this, { dialog, tasks, flames, timeline });
    dialog.addEventListener("close", () => {
      // In a notebook's frame the page has no path.
      if (this.name !== null) history.replaceState(null, "", this.address || "#");
      this.name = null;
    });
    // Beside the drawer is the page: a click there closes it.
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    this.name = null;
  }

  /** Opens the drawer that a link names; whether it names nothing else. */
  follows(link) {
    if (!link.has("about")) {
      if (this.name !== null) this.close(location.hash);
      return false;
    }
    this.open(link.get("about"));
    return link.size === 1;
  }

  /** Opens the drawer of a function that has task runs; says so if there is none of that name. */
  open(name) {
    const code = this.tasks.facts.functions.indexOf(name);
    const rows = [];
    for (let row = 0; row < this.tasks.count; row += 1)
      if (this.tasks.functionOf(row) === code) rows.push(row);
    if (this.name === null) {
      const about = new URLSearchParams(location.hash.slice(1)).has("about");
      this.address = about ? "#" : location.hash;
    }
    this.name = name;
    history.replaceState(null, "", `#${new URLSearchParams({ about: name })}`);
    const title = shortened(name, 200);
    const close = () => this.dialog.close();
    fill(
      this.dialog,
      html`<header>
          <h2 id="function-title">${title}</h2>
          <button type="button" class="close" aria-label="Close" @click=${close}>✕</button>
        </header>
        ${rows.length ? this.parts(name, rows) : NO_RUN}`,
    );
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
  }

  close(address) {
    this.address = address;
    this.dialog.close();
  }

  parts(name, rows) {
    const ended = rows.filter((row) => !this.tasks.isOpen(row));
    const durations = Float64Array.from(ended, (row) => this.tasks.durations[row]).sort();
    return html`${this.figures(rows, durations)}
      ${ended.length ? html`<h3>Durations</h3>${histogramChart(durations)}` : ""}
      <h3>Slowest task runs</h3>
      ${this.slowest(rows)}
      <h3>By worker</h3>
      ${this.byWorker(rows)} ${this.lines(name)} ${this.code(name)}`;
  }

  figures(rows, durations) {
    const { tasks } = this;
    const sum = sumOf(rows.map((row) => tasks.durations[row]));
    const cpu = sumOf(rows.map((row) => tasks.cpu[row] || 0));
    const known = rows.some((row) => Number.isFinite(tasks.cpu[row]));
    const failed = rows.filter((row) => tasks.stateName(row) === "erred").length;
    const quantile = (share) => durations[Math.min(durations.length - 1, Math.floor(share * durations.length))];
    const facts = [
      ["Task runs", formatCount(rows.length)],
      ["Failed", failed ? formatCount(failed) : ""],
      ["Had not ended", rows.length > durations.length ? formatCount(rows.length - durations.length) : ""],
      ["In all", formatSeconds(sum)],
      ["CPU", known ? formatSeconds(cpu) : "unknown"],
      ["Median", durations.length ? formatSeconds(median(durations)) : "unknown"],
      ["95 % within", durations.length ? formatSeconds(quantile(0.95)) : "unknown"],
    ];
    const told = facts.filter(([, text]) => text);
    const figure = ([label, text]) => html`<div><dt>${label}</dt><dd>${text}</dd></div>`;
    return html`<dl class="figures">${told.map(figure)}</dl>`;
  }

  slowest(rows) {
    const { tasks } = this;
    const slow = [...rows].sort((one, other) => tasks.durations[other] - tasks.durations[one]);
    const items = slow.slice(0, SLOWEST).map((row) => {
      const select = () => {
        this.close(this.address);
        this.timeline.select(row, { reveal: true });
        byId("timeline-section").scrollIntoView();
      };
      const key = shortened(tasks.keyText(tasks.keys[row]), 48);
      const about = `${key} · ${shortened(tasks.workerName(row), 24)} · at ${formatCell(tasks.starts[row], 2)} s`;
      const duration = formatSeconds(tasks.durations[row]);
      const button = html`<button type="button" class="link" @click=${select}>${duration}</button>`;
      return html`<li>${button}<small> ${about}</small></li>`;
    });
    return html`<ol class="slowest">${items}</ol>`;
  }

  byWorker(rows) {
    const { tasks } = this;
    const workers = Map.groupBy(rows, (row) => tasks.workerName(row));
    const listed = [...workers].map(([worker, own]) => {
      const durations = own.map((row) => tasks.durations[row]);
      return { worker, count: own.length, sum: sumOf(durations), middle: median(durations) };
    });
    listed.sort((one, other) => other.sum - one.sum);
    const most = Math.max(...listed.map(({ sum }) => sum), 1e-9);
    const line = ({ worker, count, sum, middle }) => html`<tr>
      <th>${shortened(worker, 40)}</th>
      <td>${formatCount(count)}</td><td>${formatSeconds(sum)}</td>
      <td>${meter(sum / most)}</td><td>${formatSeconds(middle)}</td>
    </tr>`;
    const more = listed.length - WORKERS_SHOWN;
    return html`<table class="of-workers">
        <tr>${["Worker", "Task runs", "In all", "", "Median"].map((text) => html`<th>${text}</th>`)}</tr>
        ${listed.slice(0, WORKERS_SHOWN).map(line)}
      </table>
      ${more > 0 ? html`<p class="absent">and ${counted(more, "more worker")}</p>` : ""}`;
  }

  lines(name) {
    if (!this.flames.sampled) return "";
    const lines = this.flames.linesOfFunction(name);
    if (!lines.length) return html`<h3>Hot lines</h3><p class="absent">No sample is of this function.</p>`;
    const graph = () => {
      this.close(this.address);
      this.flames.show("function", name);
      byId("flame-section").scrollIntoView();
    };
    return html`<h3>Hot lines</h3>${lineList(lines)}<button type="button" @click=${graph}>In the flame graph</button>`;
  }

  /** The code of what its tasks call, with the seconds of its lines where they were sampled. */
  code(name) {
    const known = this.tasks.facts.code;
    const functions = Object.hasOwn(known, name) ? known[name] : [];
    return functions.map(([place, source, file, first]) => {
      const title = html`<h3>Code: ${visible(place)}</h3>`;
      if (!source) return title;
      const lines = source.replace(/\n$/, "").split("\n");
      const spent = this.flames.sampled ? this.flames.linesWithin(name, { file, first, lines }) : [];
      return html`${title}${sourceTable({ first, lines }, spent)}`;
    });
  }
}
