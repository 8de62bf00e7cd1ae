// Scores of search results: guides before tutorials and concepts, and the reference after them.
const FACTORS = { howto: 2, guide: 2, tutorials: 1.8, concepts: 1.8, packages: 1, examples: 0.8, reference: 0.7 };
const GUIDES = new Set([
  "start", "cheat_sheet", "from_sb3", "porting", "export", "freezing", "plugins", "engines", "config",
]);
const REFERENCE = new Set(["changelog", "hooks", "seeds", "ported_models", "architecture", "development", "learning"]);

var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    const folder = docname.split("/")[0];
    const place = GUIDES.has(docname) ? "guide" : REFERENCE.has(docname) ? "reference" : folder;
    return score * (FACTORS[place] ?? 1);
  },
  // Sphinx's own numbers.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
