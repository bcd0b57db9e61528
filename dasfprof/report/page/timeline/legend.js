// The legends of the timeline. A click on a class of thread time shows it alone, Shift and click adds one or
// takes it away.

import { byId, make } from "../dom.js";
import { visible } from "../format.js";
import { gapLegend, legendOf, pathLegend } from "./colours.js";

/** The entries of a legend: a `name`, a `swatch`, and where they apply `about`, `title`, `text`; or a heading alone. */
export function plainLegend(entries) {
  return entries.map((entry) =>
    typeof entry === "string" ? make("li", {}, entry) : make("li", { title: entry.title ?? null }, ...partsOf(entry)),
  );
}

function partsOf({ name, swatch, about = "", text = visible(name) }) {
  return [swatch, text, make("small", {}, about && ` ${about}`)];
}

export class Legends {
  constructor(page, classes) {
    this.page = page;
    /** The names of the classes that are shown alone; none: all are shown. */
    this.chosen = new Set();
    this.buttons = new Map();
    byId("gap-legend").addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.chosen.size) this.choose([]);
    });
    const entry = (one) => make("li", {}, typeof one === "string" ? one : this.button(one));
    byId("gap-legend").replaceChildren(...gapLegend(page.gaps, classes).map(entry));
    byId("path-legend").replaceChildren(...plainLegend(pathLegend(page.tasks.path)));
  }

  /** Shows what task runs are coloured by. */
  colour(by) {
    byId("legend").replaceChildren(...plainLegend(legendOf(this.page.tasks, by)));
  }

  button(entry) {
    const { name, title = null } = entry;
    const onclick = (event) => {
      const others = [...this.chosen].filter((one) => one !== name);
      const remaining = event.shiftKey ? others : [];
      const removes = this.chosen.has(name) && (event.shiftKey || !others.length);
      this.choose(removes ? remaining : [...remaining, name]);
    };
    const button = make("button", { type: "button", "aria-pressed": "false", title, onclick }, ...partsOf(entry));
    this.buttons.set(name, button);
    return button;
  }

  /** Shows the classes of these names alone, as far as they are listed; none: all. */
  choose(names) {
    const { gaps, timeline } = this.page;
    this.chosen = new Set(names.filter((name) => this.buttons.has(name)));
    for (const [name, button] of this.buttons) button.setAttribute("aria-pressed", String(this.chosen.has(name)));
    gaps.only = this.chosen.size ? new Set([...this.chosen].map((name) => gaps.names.indexOf(name))) : null;
    timeline.draw();
    this.page.countRows();
    this.page.address?.note();
  }
}
