// Keeps a job's page current: on news, the page is fetched again and its live parts are swapped.
"use strict";

const main = document.querySelector("[data-events]");

if (main) {
  const source = new EventSource(main.dataset.events);
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
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!response.ok || turn !== asked) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    swap(fresh);
    if (!fresh.querySelector("[data-events]")) source.close();
  };

  source.onmessage = () => { due ??= setTimeout(refresh, 150); };
}
