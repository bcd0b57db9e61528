// Numbers and texts for readers.

/** Characters that are invisible or misleading: controls, marks that reorder text, lone surrogates. */
const UNSEEN = /[\p{Cc}\p{Bidi_Control}\p{Surrogate}\u2028\u2029]/gu;

export function visible(text) {
  return String(text).replace(UNSEEN, (character) => {
    const code = character.codePointAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
}

/** Returns at most so many characters of a text, without its middle, since the ends of keys differ. */
export function shortened(text, maximum) {
  const characters = String(text);
  if (characters.length <= maximum) return visible(characters);
  const tail = Math.floor(maximum / 3);
  return visible(`${characters.slice(0, maximum - tail - 1)}…${characters.slice(-tail)}`);
}

export function formatSeconds(seconds) {
  if (!Number.isFinite(seconds)) return "unknown";
  if (seconds < 0) return `−${formatSeconds(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return `${significant(seconds * 1e6)} µs`;
  if (seconds < 1) return `${significant(seconds * 1e3)} ms`;
  if (seconds < 120) return `${significant(seconds)} s`;
  const rounded = Math.round(seconds);
  const parts = [Math.floor(rounded / 3600), Math.floor(rounded / 60) % 60, rounded % 60];
  return parts[0] ? `${parts[0]} h ${parts[1]} min` : `${parts[1]} min ${parts[2]} s`;
}

export function formatBytes(bytes) {
  return Number.isFinite(bytes) ? withPrefix(bytes, "B") : "unknown";
}

export function withPrefix(number, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let step = 0;
  for (; number >= 999.5 && step < prefixes.length - 1; step += 1) number /= 1000;
  return `${step ? significant(number) : Math.round(number)} ${prefixes[step]}${unit}`;
}

export function formatUnit(number, unit) {
  if (unit.startsWith("B")) return withPrefix(number, unit);
  return unit ? `${significant(number)} ${unit}` : formatCount(Math.round(number));
}

export function formatCount(number) {
  return Number.isFinite(number) ? number.toLocaleString("en-US") : "unknown";
}

/** Returns a number with a noun: 1 task run, 2 task runs. */
export function counted(number, noun) {
  return `${formatCount(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function formatShare(share) {
  if (!Number.isFinite(share)) return "unknown";
  return share > 0 && share < 0.001 ? "under 0.1 %" : `${significant(share * 100)} %`;
}

/** Returns three significant digits, without a power of ten. */
function significant(number) {
  if (Math.abs(number) >= 100) return Math.round(number).toLocaleString("en-US");
  return String(Number(number.toPrecision(3)));
}

/** Returns a number with a fixed number of decimals. */
export function formatCell(number, decimals) {
  if (number === null || Number.isNaN(number)) return "NA";
  return number.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export function formatDate(unixSeconds) {
  const date = new Date(unixSeconds * 1000);
  if (Number.isNaN(date.getTime())) return "unknown time";
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Returns a cell of a CSV file that spreadsheets do not interpret as a formula. */
export function csvCell(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (typeof value === "number") return String(value);
  let text = value.replace(/\p{Surrogate}/gu, visible).replaceAll("\0", "\\x00");
  if (/^[ \u00a0]*[=+\-@\t\r\n＝＋－＠]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
