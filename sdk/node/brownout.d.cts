import type * as module from './brownout.js' with { 'resolution-mode': 'import' };

declare const brownout: typeof module.brownout & {
  brownout: typeof module.brownout;
  optional: typeof module.optional;
  current: typeof module.current;
  outgoingHeaders: typeof module.outgoingHeaders;
  Decision: typeof module.Decision;
};
declare namespace brownout {
  type Brownout = module.Brownout;
  type Decision = module.Decision;
}
export = brownout;
