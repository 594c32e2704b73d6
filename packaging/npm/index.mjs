export { start, binary, Server } from './index.js';
