// What applications in TypeScript write; compiled and not run.
import brownout = require('@evenkeel/brownout');
import express = require('express');

const app = express();
app.use(brownout());
const answer: boolean = brownout.optional('comments');
const now: brownout.Brownout | undefined = brownout.current();
// @ts-expect-error: a part has a name
brownout.optional(1);
void [answer, now];
