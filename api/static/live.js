// Keeps a page current: its live parts are fetched again, on an event or every few seconds.
"use strict";

const main = document.querySelector("main");
let source = null;
let due = null;
let asked = 0;

const swap = (fresh) => {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (!next || next.innerHTML === part.innerHTML) continue;
    for (const open of part.querySelectorAll("details[open]")) {
      next.querySelector(`#${open.id}`)?.setAttribute("open", "");
    }
    const focus = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
    part.replaceChildren(...next.childNodes);
    if (focus) part.querySelector(`[href="${CSS.escape(focus)}"]`)?.focus();
  }
  document.title = fresh.title;
};

const refresh = async () => {
  due = null;
  const turn = ++asked;
  const response = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (!response?.ok || turn !== asked) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  swap(fresh);
  if (!fresh.querySelector("[data-events]")) source?.close();
};

const soon = (milliseconds) => { due ??= setTimeout(refresh, milliseconds); };

if (main.dataset.events) {
  source = new EventSource(main.dataset.events);
  source.onmessage = () => soon(150);
  // the server went away, or ended the stream because the job is over: look again
  source.onerror = () => soon(2000);
}
if (main.dataset.poll) {
  setInterval(() => { if (!document.hidden) refresh(); }, 1000 * main.dataset.poll);
}
addEventListener("pagehide", () => { source?.close(); clearTimeout(due); });
