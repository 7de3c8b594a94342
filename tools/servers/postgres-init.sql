-- Roles and database of a test server: the private ones of tools/servers.sh and the one of docker-compose.yml.
-- Every password is the role's name without _user, with -pw. How each role may come in is up to pg_hba.conf.
CREATE ROLE app LOGIN PASSWORD 'app-pw';
CREATE ROLE repl LOGIN REPLICATION PASSWORD 'repl-pw';
CREATE DATABASE outbox OWNER app;

-- A publication needs CREATE on the database and the ownership of its tables: repl has app's.
GRANT app TO repl;
GRANT CREATE ON DATABASE outbox TO repl;

-- One role for each other way to prove who one is: TLS only, client certificate, MD5, clear text.
CREATE ROLE tls_user LOGIN REPLICATION PASSWORD 'tls-pw';
CREATE ROLE cert_user LOGIN REPLICATION;
CREATE ROLE pw_user LOGIN REPLICATION PASSWORD 'pw-pw';
SET password_encryption = 'md5';
SET client_min_messages = error; -- 18 warns that MD5 will go away
CREATE ROLE md5_user LOGIN REPLICATION PASSWORD 'md5-pw';
