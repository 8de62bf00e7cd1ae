// Makes tabs of the programs on the home page, and lets a click stop a film.
addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".tabs").forEach(makeTabs);
  for (const film of document.querySelectorAll("video.film")) {
    film.addEventListener("click", () => (film.paused ? film.play() : film.pause()));
  }
});

function makeTabs(box) {
  const panels = [...box.querySelectorAll(".tab")];
  const list = document.createElement("div");
  list.setAttribute("role", "tablist");
  const tabs = panels.map((panel, i) => {
    const name = panel.querySelector(".tab-name");
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `tab-${i}`;
    tab.textContent = name.textContent;
    tab.setAttribute("role", "tab");
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    name.hidden = true;
    list.append(tab);
    return tab;
  });
  const select = (chosen) => {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", i === chosen);
      tab.tabIndex = i === chosen ? 0 : -1;
      panels[i].hidden = i !== chosen;
    });
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => select(i));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const next = (i + step + tabs.length) % tabs.length;
      select(next);
      tabs[next].focus();
    });
  });
  panels[0].before(list);
  select(0);
}
