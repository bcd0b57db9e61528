// The legends of the timeline. A click on a category of thread time shows only this category. Shift and click adds
// or removes a category.

import { byId, chosenAfter, make } from "../dom.js";
import { visible } from "../format.js";
import { gapLegend, legendOf, pathLegend } from "./colours.js";

/** Creates entries of a legend. An entry is a heading, or has `name`, `swatch`, perhaps `about`, `title`, `text`. */
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
    /** Names of the categories that are shown, or empty if all are. */
    this.chosen = [];
    this.buttons = new Map();
    const entries = gapLegend(page.gaps, classes).map((entry) => (entry.name ? this.button(entry) : entry));
    byId("gap-legend").replaceChildren(...entries.map((entry) => make("li", {}, entry)));
    byId("path-legend").replaceChildren(...plainLegend(pathLegend(page.tasks.path)));
  }

  /** Shows the meaning of the task runs' colours. */
  colour(by) {
    byId("legend").replaceChildren(...plainLegend(legendOf(this.page.tasks, by)));
  }

  button(entry) {
    const { name, title = null } = entry;
    const onclick = (event) => this.choose(chosenAfter(this.chosen, name, event.shiftKey));
    const button = make("button", { type: "button", "aria-pressed": "false", title, onclick }, ...partsOf(entry));
    this.buttons.set(name, button);
    return button;
  }

  /** Shows only the categories of these names that are in the legend, or all if there are none. */
  choose(names) {
    const { gaps, timeline } = this.page;
    this.chosen = names.filter((name) => this.buttons.has(name));
    for (const [name, button] of this.buttons) button.setAttribute("aria-pressed", String(this.chosen.includes(name)));
    gaps.only = this.chosen.length ? new Set(this.chosen.map((name) => gaps.names.indexOf(name))) : null;
    timeline.draw();
    this.page.countRows();
    this.page.address?.note();
  }
}
