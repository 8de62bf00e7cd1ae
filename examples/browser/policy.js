// A policy in an exported file, run by onnxruntime-web.

import { ACTIONS } from "./cartpole.js";

/**
 * Load a policy, and return a function that chooses an action for a state.
 *
 * The function takes the state, whether the action is drawn or the most likely one, and a function that returns
 * numbers from (0, 1). An error names an input of the file that this page does not have.
 */
export async function loadPolicy(ort, address) {
  ort.env.wasm.numThreads = 1; // more would need headers that a plain server does not send
  const session = await ort.InferenceSession.create(address, { executionProviders: ["wasm"] });
  return async (state, { drawn = false, random = Math.random } = {}) => {
    const { action } = await session.run(feeds(ort, session, state, drawn, random), ["action"]);
    return Number(action.data[0]);
  };
}

/** What the file is given for a state: each of its inputs by name, one row. */
function feeds(ort, session, state, drawn, random) {
  const filled = {};
  for (const name of session.inputNames) {
    if (name === "obs") filled.obs = new ort.Tensor("float32", Float32Array.from(state), [1, 4]);
    else if (name === "mask") filled.mask = new ort.Tensor("bool", new Uint8Array(ACTIONS).fill(1), [1, ACTIONS]);
    else if (name === "deterministic") filled.deterministic = new ort.Tensor("bool", [!drawn], []);
    else if (name === "noise") {
      const width = session.inputMetadata.find((input) => input.name === name).shape[1];
      filled.noise = new ort.Tensor("float32", Float32Array.from({ length: width }, random), [1, width]);
    } else throw new Error(`the file asks for ${name}, which this page does not have: it gives obs, mask, noise, deterministic`);
  }
  return filled;
}
