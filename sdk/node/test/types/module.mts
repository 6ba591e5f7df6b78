// What applications in TypeScript write; compiled and not run.
import http from 'node:http';

import brownout, { current, Decision, optional, outgoingHeaders } from '@evenkeel/brownout';
import type { Brownout } from '@evenkeel/brownout';
import express from 'express';

const app = express();
app.use(brownout());
app.get('/', (request, response) => {
  const one: boolean = request.brownout.optional('recommendations');
  const two: boolean = brownout.optional('comments') && optional();
  const refused: string[] = request.brownout.refused;
  response.json({ one, two, refused });
});

const now: Brownout | undefined = current();
void fetch('http://127.0.0.1/', { headers: { ...outgoingHeaders(), accept: 'text/html' } });
http.createServer((request, response) => brownout()(request, response, () => response.end()));
const item: boolean = Decision.read(['?0;comments']).item;
// @ts-expect-error: a part has a name
optional(1);
void [now, item];
