-- docker-compose.yml only: makes the example's table as the application's user, in the application's database.
\connect outbox app
\i /example/schema.sql
