// One implementation for both module systems: two would not see each other's requests.
import brownout from './brownout.cjs';

export default brownout;
export const { optional, current, outgoingHeaders, Decision } = brownout;
export { brownout };
