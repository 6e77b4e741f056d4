"use strict";

const shown = ["content-length", "content-range", "content-encoding", "etag", "last-modified", "vary", "cache-control"];

const describe = (response) =>
  [`${response.status} ${response.statusText}`]
    .concat(shown.filter((name) => response.headers.has(name)).map((name) => `${name}: ${response.headers.get(name)}`))
    .join("\n");

// Server-Timing, a line for each phase: "handler;dur=1.234" becomes "handler  1.234 ms".
const timings = (response) =>
  (response.headers.get("Server-Timing") ?? "")
    .split(",")
    .map((entry) => entry.trim().split(";"))
    .map(([name, ...parameters]) => [name, parameters.find((one) => one.startsWith("dur="))?.slice(4)])
    .filter(([, duration]) => duration !== undefined)
    .map(([name, duration]) => `  ${name.padEnd(10)}${duration} ms`)
    .join("\n");

const tries = {
  async conditional() {
    const first = await fetch("logo.svg", { cache: "no-store" });
    const fields = { "If-None-Match": first.headers.get("etag") };
    const second = await fetch("logo.svg", { cache: "no-store", headers: fields });
    return `${describe(first)}\n\n${describe(second)}`;
  },
  async range() {
    const response = await fetch("files/planets.csv", { headers: { Range: "bytes=0-23" }, cache: "no-store" });
    return `${describe(response)}\n\n${await response.text()}`;
  },
  async coding() {
    const response = await fetch("style.css", { cache: "no-store" });
    const size = (await response.arrayBuffer()).byteLength;
    const coding = response.headers.get("content-encoding") ?? "none";
    return `content coding: ${coding}\nsent: ${response.headers.get("content-length")} bytes\ncontent: ${size} bytes`;
  },
  async timing() {
    const times = [];
    for (let n = 0; n < 50; n++) {
      const began = performance.now();
      await (await fetch("logo.svg", { cache: "no-store" })).arrayBuffer();
      times.push(performance.now() - began);
    }
    times.sort((a, b) => a - b);
    return `median ${times[25].toFixed(2)} ms\nfastest ${times[0].toFixed(2)} ms\nslowest ${times[49].toFixed(2)} ms`;
  },
  async listing() {
    const response = await fetch("files/?sort=size&order=desc", { headers: { Accept: "application/json" } });
    const listing = await response.json();
    const lines = listing.entries.map((entry) => `${entry.name}: ${entry.size}`);
    return `${describe(response)}\n\n${listing.path}, largest first:\n${lines.join("\n")}`;
  },
  async records() {
    const response = await fetch("records/notes.var");
    return `${describe(response)}\n\n${await response.text()}`;
  },
  async script() {
    const response = await fetch("scripts/seen.sh/a/path?a=query", { cache: "no-store" });
    return `${describe(response)}\n\n${await response.text()}\nTime in the server, by phase:\n${timings(response)}`;
  },
  async warm() {
    const lines = [];
    await fetch("warm/seen.sh", { cache: "no-store" });
    for (const kind of ["scripts", "warm"]) {
      const response = await fetch(`${kind}/seen.sh`, { cache: "no-store" });
      await response.text();
      lines.push(`${kind}/seen.sh, time by phase:\n${timings(response)}`);
    }
    return lines.join("\n\n");
  },
  async application() {
    const response = await fetch("app/a/path", { cache: "no-store" });
    return `${describe(response)}\n\n${await response.text()}\nTime in the server, by phase:\n${timings(response)}`;
  },
};

// The commands, for the address that the page was opened with.
for (const element of document.querySelectorAll(".origin")) element.textContent = location.origin;

for (const button of document.querySelectorAll("button[data-try]")) {
  button.addEventListener("click", async () => {
    const output = button.parentElement.querySelector("pre");
    try {
      output.textContent = await tries[button.dataset.try]();
    } catch (error) {
      output.textContent = `The request failed: ${error.message}`;
    }
  });
}
