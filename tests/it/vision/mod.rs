mod adhoc;
