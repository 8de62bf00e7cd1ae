// Lets the exported policy of the home page play CartPole, once the reader asks for it. The site has this script only if
// it was built with onnxruntime-web; otherwise the film stands alone.
import { STEPS, begin, draw, failed, generator, step } from "./live/cartpole.js";
import { loadPolicy } from "./live/policy.js";

const COLOURS = { track: "#56736a", cart: "#f3f6f4", pole: "#ffb454", push: "#6ab8ff" };
const MILLISECONDS = 20; // of a step, as in CartPole-v1

for (const figure of document.querySelectorAll("figure.live")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Play it in this page";
  button.addEventListener("click", () => start(figure, button));
  figure.append(button);
}

/** Replace the film by a canvas on which the policy plays. */
async function start(figure, button) {
  const caption = figure.querySelector("figcaption");
  button.disabled = true;
  button.textContent = "Loading";
  try {
    const ort = await import("./live/onnxruntime/ort.wasm.min.mjs");
    const act = await loadPolicy(ort, figure.dataset.policy);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [960, 600];
    figure.querySelector("video").replaceWith(canvas);
    button.remove();
    await play(act, canvas, (steps, best) => {
      figure.dataset.best = best;
      caption.textContent = `The file plays here: ${steps} of ${STEPS} steps. Click to push the cart.`;
    });
  } catch (error) {
    button.remove();
    caption.textContent = `The policy cannot play in this browser: ${error.message}`;
  }
}

/** Play episodes for as long as the page is open; a click disturbs the cart. */
async function play(act, canvas, report) {
  const isFast = new URLSearchParams(location.search).has("fast");
  const random = generator(Math.floor(Math.random() * 2 ** 31));
  let kick = 0;
  canvas.addEventListener("click", ({ offsetX }) => (kick = offsetX < canvas.clientWidth / 2 ? 0.6 : -0.6));
  for (let best = 0; ; ) {
    let state = begin(random);
    let steps = 0;
    while (!failed(state) && steps < STEPS) {
      const action = await act(state);
      draw(canvas, state, action, COLOURS);
      if (!isFast) await new Promise((resume) => setTimeout(resume, MILLISECONDS));
      state = step(state, action);
      state[1] += kick;
      kick = 0;
      steps += 1;
      best = Math.max(best, steps);
      report(steps, best);
    }
    await new Promise((resume) => setTimeout(resume, isFast ? 0 : 600));
  }
}
