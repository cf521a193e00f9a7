// Keeps a page up to date: on a hint from /live it fetches the page once more and puts what changed in place.
// Everything works without it; a reload shows the same.
"use strict";

(() => {
  const regions = () => [...document.querySelectorAll("[data-live][id]")];
  const sign = document.getElementById("live-state");
  if (!regions().length || !window.EventSource) return;

  let source = null;
  let busy = false;
  let again = false;

  // Not under somebody's hands: a form that is being filled in, a fold that is open for a question.
  const inUse = (region) =>
    region.querySelector("details.confirm[open], [data-keep]") !== null ||
    [...region.querySelectorAll("input:not([type=hidden]), textarea, select")].some(
      (field) => field === document.activeElement || field.dataset.touched,
    );

  const place = (region, fresh) => {
    if (region.innerHTML === fresh.innerHTML) return;
    const focused = document.activeElement && region.contains(document.activeElement) ? document.activeElement : null;
    const key = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute("href"));
    const open = [...region.querySelectorAll("details[id][open]")].map((each) => each.id);
    region.replaceChildren(...fresh.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (!key) return;
    const found = key.startsWith("#")
      ? region.querySelector(key)
      : [...region.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === key);
    found?.focus({ preventScroll: true });
  };

  const refresh = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "manual" });
      if (answer.type === "opaqueredirect") return location.reload(); // signed out meanwhile
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const region of regions()) {
        const fresh = page.getElementById(region.id);
        if (fresh && !inUse(region)) place(region, fresh);
      }
    } catch {
      // The next hint tries again.
    } finally {
      busy = false;
      if (again) {
        again = false;
        refresh();
      }
    }
  };

  const say = (text) => {
    if (sign && sign.textContent !== text) sign.textContent = text;
  };

  const connect = () => {
    source = new EventSource("/live");
    source.addEventListener("open", () => say("live"));
    source.addEventListener("changed", refresh);
    source.addEventListener("error", () => {
      say(source.readyState === EventSource.CLOSED ? "not live: reload the page" : "reconnecting …");
    });
  };

  document.addEventListener("input", (event) => {
    if (event.target.closest("[data-live]")) event.target.dataset.touched = "1";
  });
  // A page that nobody looks at holds no place.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
    } else {
      connect();
      refresh();
    }
  });
  // What an agent is writing is no event yet: looked at again while its turn is open.
  setInterval(() => {
    if (!document.hidden && document.querySelector("[data-live] [data-open]")) refresh();
  }, 2000);
  connect();
})();
