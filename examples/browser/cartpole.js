// CartPole-v1 of Gymnasium, and its picture: a pole on a cart that is pushed left or right, after
// Barto, Sutton & Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems" (1983).

const GRAVITY = 9.8;
const CART_MASS = 1.0;
const POLE_MASS = 0.1;
const TOTAL_MASS = CART_MASS + POLE_MASS;
const HALF_LENGTH = 0.5;
const FORCE = 10.0;
const SECONDS = 0.02;
const FARTHEST = 2.4;
const STEEPEST = (12 * Math.PI) / 180;
/** Steps after which an episode is cut. */
export const STEPS = 500;
/** Actions that there are: 0 pushes left, 1 pushes right. */
export const ACTIONS = 2;

/** The state after an action; a state is [position, velocity, angle, angular velocity], in metres and radians. */
export function step([x, velocity, angle, spin], action) {
  const force = action === 1 ? FORCE : -FORCE;
  const cos = Math.cos(angle);
  const sin = Math.sin(angle);
  const push = (force + POLE_MASS * HALF_LENGTH * spin * spin * sin) / TOTAL_MASS;
  const turning =
    (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - (POLE_MASS * cos * cos) / TOTAL_MASS));
  const moving = push - (POLE_MASS * HALF_LENGTH * turning * cos) / TOTAL_MASS;
  return [x + SECONDS * velocity, velocity + SECONDS * moving, angle + SECONDS * spin, spin + SECONDS * turning];
}

/** Whether an episode has failed: the cart has left the track, or the pole leans by more than 12 degrees. */
export function failed([x, , angle]) {
  return Math.abs(x) > FARTHEST || Math.abs(angle) > STEEPEST;
}

/** A state to begin with; `random` returns numbers from (0, 1). */
export function begin(random) {
  return Array.from({ length: 4 }, () => (random() - 0.5) / 10);
}

/** Numbers from the open interval (0, 1), also as float32, repeatable by their seed: Marsaglia's xorshift of 2003. */
export function generator(seed) {
  let bits = (seed ^ 0x2545f491) | 0 || 1;
  const next = () => {
    bits ^= bits << 13;
    bits ^= bits >>> 17;
    bits ^= bits << 5;
    return ((bits >>> 9) + 0.5) / 2 ** 23;
  };
  for (let i = 0; i < 16; i += 1) next(); // seeds that are close begin alike
  return next;
}

/** Colours of the picture. */
export const COLOURS = { track: "#8a8f98", cart: "#2f3b52", pole: "#c9793a", push: "#3a7bc9" };

/** Draw a state, and an arrow for the push that is on its way. */
export function draw(canvas, [x, , angle], action, colours = COLOURS) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const scale = width / (2 * FARTHEST + 0.8);
  const [middle, track] = [width / 2 + x * scale, height * 0.75];
  const [cartWidth, cartHeight] = [0.5 * scale, 0.24 * scale];
  context.clearRect(0, 0, width, height);

  context.lineCap = "round";
  context.strokeStyle = colours.track;
  context.lineWidth = 2;
  line(context, width / 2 - FARTHEST * scale, track, width / 2 + FARTHEST * scale, track);
  for (const end of [-FARTHEST, FARTHEST]) {
    line(context, width / 2 + end * scale, track - 8, width / 2 + end * scale, track + 8);
  }

  context.fillStyle = colours.cart;
  context.fillRect(middle - cartWidth / 2, track - cartHeight, cartWidth, cartHeight);
  const pivot = track - cartHeight;
  const length = 2 * HALF_LENGTH * scale;
  context.strokeStyle = colours.pole;
  context.lineWidth = 10;
  line(context, middle, pivot, middle + length * Math.sin(angle), pivot - length * Math.cos(angle));
  context.fillStyle = colours.track;
  context.beginPath();
  context.arc(middle, pivot, 5, 0, 2 * Math.PI);
  context.fill();

  if (action === undefined) return;
  const side = action === 1 ? 1 : -1;
  const [from, to, level] = [middle + side * cartWidth * 0.65, middle + side * cartWidth * 1.2, track - cartHeight / 2];
  context.strokeStyle = colours.push;
  context.lineWidth = 4;
  line(context, from, level, to, level);
  line(context, to, level, to - side * 9, level - 7);
  line(context, to, level, to - side * 9, level + 7);
}

function line(context, fromX, fromY, toX, toY) {
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
}
