// Where every second of every thread went: a bar of classes for the cluster and for each worker.

import { rowsOf } from "./data.js";
import { fill } from "./dom.js";
import { formatSeconds, formatShare, shortened, visible } from "./format.js";
import { fitting, sumOf } from "./numbers.js";
import { html } from "./vendor/lit-html.js";

const MAX_BARS = 24;

/** Fills the section; busy classes are solid, idle ones hatched. */
export function showAccounting(root, { cluster, workers }, classes) {
  const whole = rowsOf(cluster);
  if (!whole.length) {
    fill(root, html`<p class="absent">No thread of a worker is known, so there is no time to account for.</p>`);
    return;
  }
  const byWorker = Map.groupBy(rowsOf(workers), (row) => `${row.Host}\0${row.Worker}`);
  const busy = (rows) => sumOf(rows.map((row) => (row.Busy ? row["Share (%)"] : 0)));
  const shown = byWorker.size > 1 ? fitting([...byWorker.values()], busy, MAX_BARS) : [];
  const left = byWorker.size - MAX_BARS;
  fill(
    root,
    html`<div class="bars">
        ${barOf("All threads", whole, classes)} ${shown.map((rows) => barOf(rows[0].Worker, rows, classes))}
        ${left > 0 ? html`<p class="absent">and ${left} workers no further from the median</p>` : ""}
      </div>
      <table class="classes">
        <caption>Classes of thread time, of all threads</caption>
        ${whole.map((row) => classLine(row, classes))}
      </table>`,
  );
}

function classLine(row, classes) {
  return html`<tr>
    <th scope="row">${swatch(classNamed(row.Class, classes))}${visible(row.Class)}</th>
    <td class="number">${formatSeconds(row["Thread Time (s)"])}</td>
    <td class="number">${shareOf(row)}</td>
    <td class="meaning">${visible(row.Meaning)}</td>
  </tr>`;
}

function classNamed(name, classes) {
  return classes.find((one) => one.name === name);
}

/** A square in the colour of a class of thread time. */
export function swatch(one) {
  return html`<i class=${kindOf(one)} .style=${`background-color: var(--series-${one.colour})`}></i>`;
}

function kindOf({ busy, back }) {
  return busy ? "busy" : back ? "idle back" : "idle";
}

function barOf(title, rows, classes) {
  const name = shortened(title, 24);
  const parts = barParts(rows, classes);
  return html`<span>${name}</span><div class="stack" role="img" aria-label=${barLabel(title, rows)}>${parts}</div>`;
}

function barLabel(title, rows) {
  return `${visible(title)}: ${rows.map((row) => `${row.Class} ${shareOf(row)}`).join(", ")}`;
}

/** The parts of a bar; `follow(row)` is called when one is clicked. */
function barParts(rows, classes, follow = null) {
  return rows.map((row) => {
    const one = classNamed(row.Class, classes);
    const style = `background-color: var(--series-${one.colour}); width: ${row["Share (%)"]}%`;
    const title = `${row.Class}: ${formatSeconds(row["Thread Time (s)"])}, ${shareOf(row)}`;
    const click = follow && (() => follow(row));
    return html`<div class=${kindOf(one)} .style=${style} title=${title} @click=${click}></div>`;
  });
}

/** The address of the timeline with one class alone. */
function classLink(name) {
  return `#${new URLSearchParams({ view: "flatten", class: name })}`;
}

function shareOf(row) {
  return formatShare(row["Share (%)"] / 100);
}

/** Fills one bar with all thread-seconds, and names its classes, those of under 1 % as one. */
export function showClasses(bar, names, cluster, classes) {
  const rows = rowsOf(cluster);
  bar.setAttribute("aria-label", barLabel("All threads", rows));
  fill(bar, barParts(rows, classes, (row) => (location.hash = classLink(row.Class))));
  bar.hidden = names.hidden = !rows.length;
  const named = rows.filter((row) => row["Share (%)"] >= 1);
  const rest = rows.length - named.length;
  fill(names, [
    ...named.map((row) => {
      const text = html`${swatch(classNamed(row.Class, classes))}${visible(row.Class)} ${shareOf(row)}`;
      return html`<li><a href=${classLink(row.Class)} title=${visible(row.Meaning)}>${text}</a></li>`;
    }),
    rest ? html`<li>${rest} more under 1 % each</li>` : "",
  ]);
}
