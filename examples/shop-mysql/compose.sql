-- docker-compose.yml only: lets the application's user into its database.
GRANT ALL ON shop.* TO app@'%';
