// The two playgrounds behind tabs, as the ARIA pattern wants them: arrows move, one is in reach.

import { byId } from "./dom.js";

/** `offerSimilarity(offered)` shows or hides the second tab. */
export function startTabs() {
  const tabs = ["rerank-tab", "similarity-tab"].map(byId);
  const select = (chosen, focus) => {
    for (const tab of tabs) {
      const selected = tab === chosen;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !selected;
    }
    if (focus) chosen.focus();
  };
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => select(tab, false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      select(tabs[(index + step + tabs.length) % tabs.length], true);
    });
  }
  return {
    offerSimilarity(offered) {
      if (byId("tabs").hidden === !offered) return;
      byId("tabs").hidden = !offered;
      if (!offered) select(tabs[0], false);
    },
  };
}
