// Inflates the script of the page and runs it. Compression saves two thirds of its size. The page's policy has
// the hashes of both scripts.

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
