// Shows the rows of a table that is too wide for the page as lists; site.css draws them.
addEventListener("DOMContentLoaded", () => {
  const tables = document.querySelectorAll("article table.docutils");
  for (const table of tables) {
    const labels = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent);
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, i) => {
        cell.dataset.label = labels[i] ?? "";
        cell.classList.toggle("empty", !cell.textContent.trim() && !cell.querySelector("img"));
      });
    }
  }
  for (const name of document.querySelectorAll("article td code span")) {
    name.innerHTML = name.innerHTML.replace(/_(?=\w)/g, "_<wbr>"); // long names break after a part
  }
  const fit = () => {
    for (const table of tables) {
      table.classList.remove("stacked");
      table.classList.toggle("stacked", table.scrollWidth > table.parentElement.clientWidth + 1);
    }
  };
  fit();
  addEventListener("resize", fit);
});
