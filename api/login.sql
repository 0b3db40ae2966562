-- The login of servers and workers, made once, when the database is. It owns nothing;
-- `memstore migrate --grant server` lets it serve.
\getenv password SERVER_PASSWORD
CREATE ROLE server LOGIN PASSWORD :'password';
