// What changes on the page comes as server-sent events. htmx puts the pieces of
// HTML in their places; this adds the figures, and the dots that show messages
// on their way.
(() => {
  "use strict";

  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  // --- The connection ------------------------------------------------------

  const lamp = document.querySelector("[data-part=connection]");
  const setLive = (live) => {
    const text = live ? "Live" : "Reconnecting";
    lamp.dataset.state = live ? "live" : "off";
    const label = lamp.querySelector("[data-live]");
    if (label.textContent !== text) label.textContent = text;
  };
  setLive(false);

  const known = new WeakSet();
  document.body.addEventListener("htmx:sseOpen", (event) => {
    const source = event.detail.source;
    setLive(true);
    if (known.has(source)) return;
    known.add(source);
    source.addEventListener("figures", (message) => show(JSON.parse(message.data)));
    source.addEventListener("hops", (message) => travel(JSON.parse(message.data)));
  });
  document.body.addEventListener("htmx:sseError", () => setLive(false));

  // --- Figures -------------------------------------------------------------

  const byName = (attribute) => {
    const all = new Map();
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      const name = element.getAttribute(attribute);
      if (!all.has(name)) all.set(name, []);
      all.get(name).push(element);
    }
    return all;
  };
  const figures = byName("data-figure");
  const parts = byName("data-part");
  const buttons = document.querySelectorAll(".lab button");

  function show(now) {
    for (const [name, text] of Object.entries(now.text)) {
      for (const element of figures.get(name) ?? []) {
        if (element.textContent !== text) element.textContent = text;
      }
    }
    for (const [name, state] of Object.entries(now.state)) {
      for (const element of parts.get(name) ?? []) {
        if (element.dataset.state !== state) element.dataset.state = state;
      }
    }
    for (const button of buttons) {
      // It stays a button: who presses it is told what is running.
      if (now.state.experiment) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
    }
  }

  // --- Dots ----------------------------------------------------------------

  const duration = 620; // of one hop, in milliseconds
  const spacing = 45; // between dots on one arrow
  const longest = 2500; // how far dots may lag behind the messages

  // An arrow of the drawing that is seen just now.
  let arrows = new Map();
  let layer = null;
  function lookAtDrawing() {
    for (const drawing of document.querySelectorAll(".drawing")) {
      if (drawing.getClientRects().length === 0) continue;
      const dots = drawing.querySelector(".dots");
      if (dots === layer) return;
      layer?.replaceChildren();
      moving.clear();
      layer = dots;
      arrows = new Map();
      for (const path of drawing.querySelectorAll("[data-hop]")) {
        arrows.set(path.dataset.hop, { path, length: path.getTotalLength(), free: 0 });
      }
    }
  }

  const moving = new Set();
  let running = false;

  // fly sends a dot along an arrow, not before the given time, and returns when
  // it arrives.
  function fly(name, earliest) {
    const arrow = arrows.get(name);
    if (!arrow) return earliest;
    const now = performance.now();
    const start = Math.max(earliest, now, arrow.free);
    if (start - now > longest) return earliest; // seen in the numbers alone
    arrow.free = start + spacing;
    if (calm.matches) {
      light(arrow, start - now);
      return start;
    }
    moving.add({ arrow, start, dot: null });
    if (!running) {
      running = true;
      requestAnimationFrame(step);
    }
    return start + duration;
  }

  // light shows a message to those who want nothing to move.
  function light(arrow, delay) {
    clearTimeout(arrow.dark);
    setTimeout(() => arrow.path.classList.add("lit"), delay);
    arrow.dark = setTimeout(() => arrow.path.classList.remove("lit"), delay + 900);
  }

  function step(now) {
    for (const one of moving) {
      const part = (now - one.start) / duration;
      if (part < 0) continue;
      if (part >= 1) {
        one.dot?.remove();
        moving.delete(one);
        continue;
      }
      if (!one.dot) {
        one.dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
        one.dot.setAttribute("class", "dot");
        one.dot.setAttribute("r", "5");
        layer.append(one.dot);
      }
      const eased = part < 0.5 ? 2 * part * part : 1 - 2 * (1 - part) * (1 - part);
      const at = one.arrow.path.getPointAtLength(one.arrow.length * eased);
      one.dot.setAttribute("cx", at.x);
      one.dot.setAttribute("cy", at.y);
    }
    running = moving.size > 0;
    if (running) requestAnimationFrame(step);
  }

  // When each message arrives where it is going, so that its hops follow each
  // other: on the way that all copies share, and to each service.
  const arrivals = new Map();
  const remembered = 500; // messages

  function travel(hops) {
    if (document.hidden) return;
    lookAtDrawing();
    for (const { m: message, h: hop } of hops) {
      let way = arrivals.get(message);
      if (!way) {
        way = { shared: 0, copies: new Map() };
        arrivals.set(message, way);
        if (arrivals.size > remembered) arrivals.delete(arrivals.keys().next().value);
      }
      if (!hop.startsWith("deliver-")) {
        way.shared = fly(hop, way.shared);
        if (hop !== "send") continue;
        for (const name of arrows.keys()) {
          if (name.startsWith("queue-")) way.copies.set(name.slice(6), fly(name, way.shared));
        }
        continue;
      }
      const service = hop.slice(8);
      way.copies.set(service, fly(hop, way.copies.get(service) ?? way.shared));
    }
  }
})();
