// Inflates the script of the page, which is a third as large so, and runs it; the page's policy
// knows the hash of both.

import { bytesOfBase64, inflate } from "./inflate.js";

async function load() {
  const packed = document.getElementById("script");
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await inflate(bytesOfBase64(packed.textContent)));
  packed.replaceWith(script);
}

load().catch((error) => {
  const failed = document.getElementById("failed");
  failed.textContent = `This browser could not read the page: ${error}`;
  failed.hidden = false;
  throw error;
});
