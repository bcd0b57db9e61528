// What is taken elsewhere: verdict and findings as Markdown, the timeline as a picture, a link to what is seen.

import { byId, download, findAll, make } from "./dom.js";
import { formatSeconds, visible } from "./format.js";
import { currentPalette } from "./timeline/palette.js";

/** Height of a line of text in a saved picture, in CSS pixels. */
const LINE = 20;

/** The run, its verdict and its findings as Markdown; symptoms are indented beneath their cause. */
function markdownOf({ summary }, findings) {
  const items = findings.map((row) => {
    const stake = row["Seconds at stake (s)"];
    const mark = row.Severity + (stake === null ? "" : `, ${formatSeconds(stake)}`);
    const indent = row.Cause === null ? "" : "  ";
    return `${indent}- **${plain(mark)}**: ${plain(row.Finding)} *${plain(row.Suggestion)}*`;
  });
  const about = ["subtitle", "recorded-with"].map((id) => byId(id).textContent).filter(Boolean);
  const head = `**${plain(byId("title").textContent)}** (${plain(about.join(" · "))})`;
  return `${head}\n\n${plain(`${summary.headline} ${summary.spent}`)}\n${["", ...items].join("\n")}\n`;
}

/** A text as one line of Markdown in which nothing of it is markup. */
function plain(text) {
  return visible(text)
    .replace(/\s+/g, " ")
    .replace(/[\\`*_[\]<>#|~&@]/g, (sign) => (/[<>&@]/.test(sign) ? `&#${sign.charCodeAt(0)};` : `\\${sign}`));
}

/** Puts text on the clipboard, and tells of it on the button that asked. */
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Frames of notebooks may not write to the clipboard; they may copy what is selected.
    const box = make("textarea", { class: "unseen" });
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1500);
}

/** The timeline as it is seen, with its title and its colours named, as a canvas. */
function pictureOf(timeline, title) {
  const { background, text, faint } = currentPalette();
  const picture = timeline.canvas;
  const scale = picture.width / timeline.width;
  const canvas = make("canvas", { width: picture.width });
  const context = canvas.getContext("2d");
  context.font = "12px system-ui, sans-serif";
  const lists = findAll("#legend, #path-legend, #gap-legend").filter((list) => !list.hidden);
  const entries = lists.map((list) => placed(list.children, context, timeline.width));
  const lines = entries.reduce((sum, { count }) => sum + count, 1.5);
  canvas.height = picture.height + Math.round(lines * LINE * scale); // forgets the font
  context.fillStyle = background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, canvas.height - picture.height);
  context.scale(scale, scale);
  context.textBaseline = "middle";
  context.fillStyle = text;
  context.font = "600 13px system-ui, sans-serif";
  context.fillText(title, 8, LINE / 2);
  context.font = "12px system-ui, sans-serif";
  let line = 1.5;
  for (const { items, count } of entries) {
    for (const { x, at, text: name, swatch } of items) {
      const y = (line + at) * LINE;
      if (swatch) {
        context.fillStyle = getComputedStyle(swatch).backgroundColor;
        context.fillRect(x, y - 5, 10, 10);
      }
      context.fillStyle = faint;
      context.fillText(name, x + (swatch ? 14 : 0), y);
    }
    line += count;
  }
  return canvas;
}

/** Where the entries of a legend stand in lines of a width. */
function placed(entries, context, width) {
  const items = [];
  let [x, at] = [8, 0];
  for (const entry of entries) {
    const [text, swatch] = [entry.textContent, entry.querySelector("i")];
    const wide = context.measureText(text).width + 30;
    if (x > 8 && x + wide > width) [x, at] = [8, at + 1];
    items.push({ x, at, text, swatch });
    x += wide;
  }
  return { items, count: at + 1 };
}

/** Connects the buttons. */
export function listenToTakers(page) {
  const button = (id, taken) => byId(id).addEventListener("click", (event) => taken(event.target));
  button("copy-findings", (asked) => copy(markdownOf(page.facts, page.findings.rows), asked));
  button("copy-link", (asked) => copy(page.address.write(), asked));
  button("save-picture", () => {
    const title = `${byId("title").textContent}: ${byId("window").textContent}`;
    page.timeline.paint();
    pictureOf(page.timeline, title).toBlob((blob) => download("timeline.png", [blob], "image/png"));
  });
}
